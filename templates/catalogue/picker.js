"use strict";
// The picker: five choices in, one of three answers out. The state is in the address, so that it can be sent on.
(function () {
  const $ = (id) => document.getElementById(id);
  const fields = ["framework", "version", "python", "card", "driver"];
  let own = { releases: [], images: [], reasons: [], sources: [] }; // of the chosen framework

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

  function chosen() {
    return own.releases.find((r) => r.v === $("version").value);
  }

  function fillVersions(wanted) {
    options($("version"), own.releases.map((r) => [r.v, r.v]), wanted);
  }

  function fillPythons(wanted) {
    const pythons = chosen().p.slice().reverse();
    const proposed = (chosen().m.match(/python: "(.*)"/) || [])[1];
    options($("python"), pythons.map((p) => [p, p]), pythons.includes(wanted) ? wanted : proposed);
  }

  function judge(release, python, card, driver) {
    const [, capability] = RTBUILD.cards.find(([name]) => name === card);
    const at = RTBUILD.capabilities.indexOf(capability);
    const plain = release.v.split("+")[0];
    const images = own.images.filter((i) => i.py === python && i.v === plain);
    const ran = images.flatMap((i) => i.runs.filter((run) => run[0] === card && !(driver && older(driver, run[1]))).map((run) => [i, run]));
    if (ran.length) return { state: "ran", image: ran[0][0], run: ran[0][1] };
    const word = { p: "possible", i: "impossible", u: "unknown" }[release.a[at]];
    const [text, from] = own.reasons[release.w.length > 1 ? release.w[at] : release.w[0]];
    const [reason, source] = [text.replaceAll("{v}", () => release.v).replaceAll("{m}", () => card), own.sources[from]];
    if (word === "possible" && driver && release.d && older(driver, release.d))
      return { state: "impossible", reason: "driver " + driver + " is older than " + release.d + ", which its CUDA needs", source: "" };
    if (word === "possible" && driver && !release.d)
      return { state: "unknown", reason: "no table says which driver its CUDA needs", source: "" };
    return { state: word, reason, source, image: images[0] };
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

  function show() {
    const release = chosen();
    const [python, card, driver] = [$("python").value, $("card").value, $("driver").value.trim()];
    const box = $("answer");
    box.hidden = false;
    if (driver && !/^\d{3}(\.\d+){0,2}$/.test(driver)) {
      box.className = "unknown";
      box.replaceChildren(element("p", "‘" + driver + "’ is no driver version such as 535.104.05. 12.4 and 13.0 are CUDA versions."));
      return;
    }
    const found = judge(release, python, card, driver);
    const words = { ran: "✓ ran on a GPU", possible: "○ possible", impossible: "✗ impossible", unknown: "? unknown" };
    box.className = found.state;
    const title = element("p");
    title.append(element("span", words[found.state], { class: "badge " + found.state }), " " + release.r + ", Python " + python + ", " + card);
    box.replaceChildren(title);
    if (found.state === "possible") box.append(element("p", "The compatibility rules accept it. No report from this card says that it ran.", { class: "hint" }));
    if (found.run) box.append(element("p", found.run[3] + ", driver " + found.run[1] + ", " + found.run[2]));
    if (found.reason) box.append(element("p", found.reason));
    if (found.source) {
      const line = element("p", "Source: ");
      line.append(/^https?:/.test(found.source) ? element("a", found.source, { href: found.source, rel: "noreferrer" }) : element("code", found.source));
      box.append(line);
    }
    if (release.d) box.append(element("p", "CUDA " + (release.c || "?") + ", cuDNN " + (release.n || "?") + ", driver " + release.d + " or newer"));
    if (found.state === "possible" || found.state === "ran") {
      const index = release.x.map((url) => " --extra-index-url " + url).join("");
      box.append(lines("pip", "pip install '" + release.r + "'" + index));
      if (found.image && found.image.name) {
        box.append(lines("docker", "docker run --rm --gpus all " + found.image.name + " cudnn-verify"));
        if (found.image.colab) box.append(lines("Colab", "docker run --rm --gpus all -p 127.0.0.1:8888:8888 " + found.image.name));
      }
      if (release.b[python]) box.append(lines("rtbuild: save as matrices/mine.yaml, then: rtbuild build matrices/mine.yaml", release.m.replace(/python: ".*"/, 'python: "' + python + '"').replace(/base: ".*"/, 'base: "' + release.b[python] + '"')));
      else box.append(element("p", "No base image on record has Python " + python + " for it, so there is only pip."));
    }
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
    options($("card"), RTBUILD.cards.map(([name, cc]) => [name, name + " (" + cc + ")"]), asked.get("card") || "T4");
    $("driver").value = asked.get("driver") || "";
    $("picker").hidden = $("driver-hint").hidden = false;
    $("picker").addEventListener("submit", (event) => event.preventDefault());
    $("framework").addEventListener("change", () => load($("framework").value, () => { fillVersions(); fillPythons(); show(); }));
    $("version").addEventListener("change", () => { fillPythons($("python").value); show(); });
    ["python", "card"].forEach((id) => $(id).addEventListener("change", show));
    $("driver").addEventListener("input", show);
    load($("framework").value, () => { fillVersions(asked.get("version")); fillPythons(asked.get("python")); show(); });
  }

  window.addEventListener("hashchange", start, { once: true });
  start();
})();
