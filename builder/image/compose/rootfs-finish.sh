#!/bin/sh
# Run by mmdebstrap when all packages are configured; $1 is the new system's folder.
set -eu
root=$1

# For people at a terminal, not for a container. Licences (copyright) stay.
cat > "$root/etc/dpkg/dpkg.cfg.d/rtbuild" <<'CONFIG'
# Packages that are installed later leave out what this system does without.
path-exclude=/usr/share/doc/*
path-include=/usr/share/doc/*/copyright
path-exclude=/usr/share/info/*
path-exclude=/usr/share/locale/*
path-exclude=/usr/share/man/*
CONFIG
find "$root/usr/share/doc" -mindepth 2 ! -type d ! -name copyright -delete
find "$root/usr/share/doc" -mindepth 1 -type d -empty -delete
for folder in info lintian locale man; do
    if [ -d "$root/usr/share/$folder" ]; then
        find "$root/usr/share/$folder" -mindepth 1 -delete
    fi
done

# What belongs to the machine on which this runs. Docker makes the first three for each container.
rm -f "$root/etc/hostname" "$root/etc/hosts" "$root/etc/resolv.conf"
rm -f "$root/etc/apt/apt.conf.d/99mmdebstrap" "$root/etc/dpkg/dpkg.cfg.d/99mmdebstrap"
if [ -d "$root/etc/apt" ]; then
    rm -rf "$root/etc/apt/sources.list.d/"*
    echo '# Put together without an archive. To install more with apt, name one here.' > "$root/etc/apt/sources.list"
fi
if [ -e "$root/etc/machine-id" ]; then
    : > "$root/etc/machine-id"
fi

# Caches, logs and backups, which differ from run to run.
rm -f "$root/var/cache/ldconfig/aux-cache" "$root/etc/.pwd.lock"
rm -f "$root"/var/cache/debconf/*-old "$root"/var/lib/dpkg/*-old
rm -f "$root/etc/passwd-" "$root/etc/group-" "$root/etc/shadow-" "$root/etc/gshadow-"
find "$root/var/log" -type f -delete

# Packages compile their Python several files at a time, and the result depends on the order
# (https://github.com/python/cpython/issues/129724). Compiled one after another it does not, and without any
# every start of Python costs 0.2 s more. "checked-hash": no times in the files, and an edited source counts.
find "$root/usr/lib" "$root/usr/share" -name '*.pyc' -delete
for interpreter in "$root"/usr/bin/python3.[0-9] "$root"/usr/bin/python3.[0-9][0-9]; do
    if [ -x "$interpreter" ]; then
        python=${interpreter##*/}
        for folder in /usr/lib/python3 "/usr/lib/$python"; do
            if [ -d "$root$folder" ]; then
                chroot "$root" env PYTHONDONTWRITEBYTECODE=1 PYTHONHASHSEED=0 \
                    "/usr/bin/$python" -m compileall \
                    -q -j 1 --invalidation-mode checked-hash "$folder"
            fi
        done
    fi
done
