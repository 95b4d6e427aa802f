"use strict";
// The picker: six choices in, one of three answers out. The state is in the address, so that it can be sent on.
(function () {
  const $ = (id) => document.getElementById(id);
  const fields = ["framework", "version", "python", "extension", "card", "driver"];
  let own = { releases: [], images: [], reasons: [], sources: [], pins: [], bases: [] }; // of the chosen framework

  function image(row) {
    if (!Array.isArray(row)) return row;
    const [id, page, py, v, name, colab, ...runs] = row;
    const filled = (text) => text.replaceAll("{i}", () => id);
    return { id, page: "images/" + filled(page), py, v, name: filled(name), colab, runs };
  }

  function load(framework, then) {
    const ready = () => { own = RTBUILD.frameworks[framework]; own.images = own.images.map(image); then(); };
    if (RTBUILD.frameworks[framework]) { ready(); return; }
    const script = element("script", "", { src: RTBUILD.files[framework] });
    script.addEventListener("load", ready);
    document.head.append(script);
  }

  function options(select, values, wanted) {
    select.replaceChildren(...values.map(([value, text]) => new Option(text, value)));
    if (values.some(([value]) => value === wanted)) select.value = wanted;
  }

  const numbers = (version) => version.split(/[.+]/).map((part) => parseInt(part, 10) || 0);
  function older(a, b) {
    const [x, y] = [numbers(a), numbers(b)];
    for (let i = 0; i < Math.max(x.length, y.length); i++) if ((x[i] || 0) !== (y[i] || 0)) return (x[i] || 0) < (y[i] || 0);
    return false;
  }

  // Cards as `builder.core.cards` reads them: the known name that the most of the first words spell.
  const brands = ["nvidia", "tesla", "geforce", "quadro", "grid", "jetson", "agx"];
  const wordsOf = (text) => text.toLowerCase().split(/[^a-z0-9]+/).filter((word) => word && !brands.includes(word));
  const cards = new Map(RTBUILD.cards.map((card) => [wordsOf(card[0]).join(""), card]));
  const series = { gtx: "rtx", rtx: "gtx" };

  function firstCard(words) {
    for (let count = words.length; count > 0; count--) {
      let name = words.slice(0, count).join("");
      if (!cards.has(name) && series[name.slice(0, 3)]) name = series[name.slice(0, 3)] + name.slice(3);
      if (!cards.has(name)) continue;
      const capability = cards.get(name)[1].split(",")[0];
      const named = words.slice(count).map((word) => RTBUILD.generations[word]).filter(Boolean);
      return named.every((served) => served.includes(capability)) ? cards.get(name) : null;
    }
    return null;
  }

  function withoutSeries(text) {
    const words = text.replace(/^(\d{3,4})(ti|super)\b/, "$1 $2").replace(/(sxm\d?|pcie|nvl)$/, "").split(" ");
    if (/^\d{3,4}$/.test(words[0])) return firstCard(["rtx", ...words]) || firstCard(["gtx", ...words]);
    return /^a\d{4}$/.test(words[0]) ? firstCard(["rtx", ...words]) : firstCard(words);
  }

  // [name, compute capability, title, first driver that lists it]; null if no table has it
  function cardOf(text) {
    const found = text.trim().match(/^(?:(?:sm|compute|cc)[_ ]?(\d{1,2})[.,]?(\d)[af]?|(\d{1,2})[.,](\d)|(\d)(\d))$/i);
    if (found) {
      const capability = (found[1] || found[3] || found[5]) + "." + (found[2] || found[4] || found[6]);
      return capability in RTBUILD.kinds ? [capability, capability, "compute capability " + capability, ""] : null;
    }
    const words = wordsOf(text.replace(/^\s*\d{1,3} ?[xX] ?(?=[A-Za-z])/, ""));
    return firstCard(words) || withoutSeries(words.join(" "));
  }

  // What is left of a driver's number in what was typed, or pasted from nvidia-smi's first line.
  function driverOf(text) {
    const found = text.match(/Driver Version:\s*([\d.]+)/) || text.match(/^\s*(\d{3}(?:\.\d+){0,2})\s*$/);
    return found ? found[1] : null;
  }

  // Whether a driver serves a card: null if so, else [state, reason]. A branch stands for its first release.
  function driverAgainst(driver, card, need) {
    const given = RTBUILD.branches[driver] || driver;
    const [since, before] = RTBUILD.kinds[card[1]] || ["", ""];
    const partly = (limit) => driver.split(".").length < limit.split(".").length && driver === limit.split(".").slice(0, driver.split(".").length).join(".");
    const found = [];
    for (const [limit, what] of [[need, "its CUDA needs"], [since, card[2] + " needs"]]) {
      if (!limit || !older(given, limit)) continue;
      if (partly(limit)) found.push(["unknown", "branch " + driver + " has releases before and after " + limit + ", which " + what + "; give the full version"]);
      else found.push(["impossible", "driver " + driver + " is older than " + limit + ", which " + what]);
    }
    if (before && !older(given, before)) found.push(["impossible", "drivers from " + before + " on serve " + card[2] + " no more"]);
    return found.find(([state]) => state === "impossible") || found[0] || null;
  }

  // What is told of a driver that serves a card's generation and does not list the card: [] or one warning.
  function listedLater(driver, card) {
    if (!driver || !card[3] || !older(RTBUILD.branches[driver] || driver, card[3])) return [];
    return [[card[3] + " is the first driver that lists " + card[2] + "; an older one, such as " + driver + ", serves its generation: that nvidia-smi names the card shows that it serves it", ""]];
  }

  function chosen() {
    return own.releases.find((r) => r.v === $("version").value);
  }

  const basesOf = (release) => own.bases[release.b];
  const pinsOf = (release) => release.i.map((number) => own.pins[number]);

  function fillVersions(wanted) {
    options($("version"), own.releases.map((r) => [r.v, r.v]), wanted);
  }

  function fillPythons(wanted) {
    const pythons = chosen().p.slice().reverse();
    const proposed = (chosen().m.match(/python: "(.*)"/) || [])[1];
    options($("python"), pythons.map((p) => [p, p]), pythons.includes(wanted) ? wanted : proposed);
  }

  function said(release, card, number) {
    const [text, from] = own.reasons[number];
    return [text.replaceAll("{v}", () => release.v).replaceAll("{m}", () => card[2]).replaceAll("{c}", () => card[1].split(", ")[0]), own.sources[from]];
  }

  function fillExtensions(wanted) {
    options($("extension"), [["", "nothing else"], ...chosen().e.map(([text]) => [text, text.replace("==", " ")])], wanted);
  }

  function judge(release, python, card, driver, extension) {
    const at = RTBUILD.capabilities.indexOf(card[1]);
    const plain = release.v.split("+")[0];
    const images = own.images.filter((i) => i.py === python && i.v === plain);
    const ran = images.flatMap((i) => i.runs.filter((run) => run[0] === card[0] && !extension && !(driver && older(driver, run[1]))).map((run) => [i, run]));
    if (ran.length) return { state: "ran", image: ran[0][0], run: ran[0][1] };
    const word = { p: "possible", i: "impossible", u: "unknown" }[release.a[at]];
    const [reason, source] = said(release, card, release.w[at] ?? release.w[""]);
    const warnings = [...release.k, ...(release.l[at] || [])].map((number) => said(release, card, number));
    const against = driver && word === "possible" ? driverAgainst(driver, card, release.d) : null;
    if (against) return { state: against[0], reason: against[1], source: "", warnings };
    if (word === "possible") warnings.push(...listedLater(driver, card));
    if (word === "possible" && driver && !release.d)
      return { state: "unknown", reason: "no table says which driver its CUDA needs", source: "", warnings };
    const beside = extension && word === "possible" ? { p: "possible", i: "impossible", u: "unknown" }[extension[1][at]] : "possible";
    if (beside !== "possible") return { state: beside, reason: extension[0] + (beside === "unknown" ? ": whether it has code for " : " has no code for ") + card[2] + (beside === "unknown" ? " is not known" : ""), source: "", warnings };
    return { state: word, reason, source, warnings, image: images[0] };
  }

  function element(name, text, attributes) {
    const made = document.createElement(name);
    if (text) made.textContent = text;
    Object.entries(attributes || {}).forEach(([key, value]) => made.setAttribute(key, value));
    return made;
  }

  function lines(title, text) {
    const block = element("div");
    const button = element("button", "Copy", { type: "button", class: "copy", "aria-label": "Copy: " + title });
    button.addEventListener("click", () => copy(text, button));
    const head = element("h2", title + " ");
    head.append(button);
    const code = element("pre", "", { tabindex: "0" });
    code.append(element("code", text));
    block.append(head, code);
    return block;
  }

  async function copy(text, button) {
    try {
      await navigator.clipboard.writeText(text);
    } catch (error) { // a page from a folder has no clipboard of its own in some browsers
      const area = element("textarea", text);
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  }

  // The matrix with the extension in its `pip`.
  function withExtension(matrix, extension) {
    if (!extension) return matrix;
    if (/^( *)pip: \[/m.test(matrix)) return matrix.replace(/^( *pip: \[.*)\]$/m, (_, begin) => begin + ', "' + extension[0] + '"]');
    return matrix.replace(/^( *)(- )?framework: .*$/m, (line, spaces, dash) => line + "\n" + spaces + (dash ? "  " : "") + 'pip: ["' + extension[0] + '"]');
  }

  // The matrix for the platform that a card is bound to.
  function onPlatform(matrix, platform) {
    return platform ? matrix.replace(/^( *)base: /m, (_, spaces) => spaces + "platform: " + platform + "\n" + spaces + "base: ") : matrix;
  }

  function show() {
    const release = chosen();
    const [python, card, driver] = [$("python").value, cardOf($("card").value), driverOf($("driver").value)];
    const extension = release.e.find(([text]) => text === $("extension").value);
    const box = $("answer");
    box.hidden = false;
    const open = (text) => { box.className = "unknown"; box.replaceChildren(element("p", text)); };
    if (!$("card").value.trim()) { open("Type your card’s name, as nvidia-smi -L shows it, for example RTX 3090."); return; }
    if (!card) { open("‘" + $("card").value + "’ is no card of NVIDIA’s in the tables. Its compute capability is taken, too: nvidia-smi --query-gpu=compute_cap prints it, for example 8.6."); return; }
    if ($("driver").value.trim() && !driver) { open("‘" + $("driver").value.trim() + "’ is no driver version such as 535.104.05. 12.4 and 13.0 are CUDA versions."); return; }
    const found = judge(release, python, card, driver, extension);
    const words = { ran: "✓ ran on a GPU", possible: "○ possible", impossible: "✗ impossible", unknown: "? unknown" };
    box.className = found.state;
    const title = element("p");
    title.append(element("span", words[found.state], { class: "badge " + found.state }), " " + release.r + ", Python " + python + ", " + card[2]);
    box.replaceChildren(title);
    if (found.state === "possible") box.append(element("p", "The compatibility rules accept it. No report from this card says that it ran.", { class: "hint" }));
    if (found.run) box.append(element("p", found.run[3] + ", driver " + found.run[1] + ", " + found.run[2]));
    for (const [text, source] of found.warnings || []) {
      const warning = element("p", "", { class: "warning" });
      warning.append(element("strong", "Warning: "), text);
      if (source) warning.append(element("span", " Source: " + source, { class: "hint" }));
      box.append(warning);
    }
    if (found.reason) box.append(element("p", found.reason));
    if (found.source) {
      const line = element("p", "Source: ");
      line.append(/^https?:/.test(found.source) ? element("a", found.source, { href: found.source, rel: "noreferrer" }) : element("code", found.source));
      box.append(line);
    }
    if (release.d) box.append(element("p", "CUDA " + (release.c || "?") + ", cuDNN " + (release.n || "?") + ", driver " + release.d + " or newer"));
    if (found.state === "possible" || found.state === "ran") {
      const asked = [release.r, ...pinsOf(release), ...(extension ? [extension[0]] : [])].map((text) => "'" + text + "'").join(" ");
      box.append(lines("pip", "pip install " + asked + release.x.map((url) => " --extra-index-url " + url).join("")));
      if (release.o) box.append(element("p", "Its wheel brings no CUDA: CUDA " + (release.c || "(version not known)") + " and cuDNN " + (release.n || "(version not known)") + " must be on the system" + (pinsOf(release).some((text) => text.startsWith("nvidia-")) ? ", or NVIDIA’s wheels in the line above serve, if their folders are where the loader looks: rtbuild venv sees to that." : ".")));
      box.append(element("p", "pip asks the package index of your own configuration" + (release.x.length ? ", and the one in the line." : "."), { class: "hint" }));
      if (extension && (release.m.match(/python: "(.*)"/) || [])[1] !== python) box.append(element("p", "Warning: " + extension[0] + " was judged on Python " + (release.m.match(/python: "(.*)"/) || [])[1] + ", not on " + python + ".", { class: "warning" }));
      if (found.image && found.image.name) {
        box.append(lines("docker", "docker run --rm --gpus all " + found.image.name + " cudnn-verify"));
        if (found.image.colab) box.append(lines("Colab", "docker run --rm --gpus all -p 127.0.0.1:8888:8888 " + found.image.name));
      }
      const platform = card[1].split(", ")[1];
      if (basesOf(release)[python] && (!platform || (release.y[platform] || []).includes(python))) box.append(lines("rtbuild: save as matrices/mine.yaml, then: rtbuild build matrices/mine.yaml", onPlatform(withExtension(release.m, extension), platform).replace(/python: ".*"/, 'python: "' + python + '"').replace(/base: ".*"/, 'base: "' + basesOf(release)[python] + '"')));
      else box.append(element("p", "No base image on record has Python " + python + " for it, so there is only pip."));
    }
    const page = element("p");
    page.append(element("a", release.f + " " + release.v + " on each card, with sources", { href: release.h }));
    box.append(page);
    if (found.image) {
      const link = element("p");
      link.append(element("a", "Image " + found.image.id, { href: found.image.page }));
      box.append(link);
    }
    const state = new URLSearchParams(fields.map((name) => [name, $(name).value]).filter(([, value]) => value));
    history.replaceState(null, "", "#" + state);
  }

  function start() {
    const asked = new URLSearchParams(location.hash.slice(1));
    options($("framework"), Object.entries(RTBUILD.titles), asked.get("framework"));
    $("cards").replaceChildren(...RTBUILD.cards.map((card) => new Option(card[1], card[2])));
    $("drivers").replaceChildren(...Object.keys(RTBUILD.branches).sort((a, b) => b - a).map((name) => new Option(name, name)));
    $("card").value = asked.get("card") || "T4";
    $("driver").value = asked.get("driver") || "";
    $("picker").hidden = $("driver-hint").hidden = false;
    $("picker").addEventListener("submit", (event) => event.preventDefault());
    $("framework").addEventListener("change", () => load($("framework").value, () => { fillVersions(); fillPythons(); fillExtensions(); show(); }));
    $("version").addEventListener("change", () => { fillPythons($("python").value); fillExtensions($("extension").value); show(); });
    ["python", "extension"].forEach((id) => $(id).addEventListener("change", show));
    ["card", "driver"].forEach((id) => $(id).addEventListener("input", show));
    load($("framework").value, () => { fillVersions(asked.get("version")); fillPythons(asked.get("python")); fillExtensions(asked.get("extension")); show(); });
  }

  window.addEventListener("hashchange", start, { once: true });
  start();
})();
