"use strict";
// A pasted error: the causes that one of its known texts names. Versions differ, so numbers count as equal.
(function () {
  const field = document.getElementById("message");
  const told = document.getElementById("found");
  const plain = (text) => text.toLowerCase().replace(/\d+(\.\d+)*/g, "0").replace(/\s+/g, " ").trim();
  const rows = [...document.querySelectorAll("#causes li")].map((row) =>
    [row, [...row.dataset.texts.split("\n"), row.textContent].filter(Boolean).map(plain)]);

  function search() {
    const wanted = plain(field.value);
    let count = 0;
    for (const [row, texts] of rows) {
      row.hidden = Boolean(wanted) && !texts.some((text) => wanted.includes(text) || text.includes(wanted));
      count += !row.hidden;
    }
    told.textContent = !wanted ? "" : count ? count + (count === 1 ? " cause fits." : " causes fit.")
      : "No known message fits. rtbuild diagnose reads whole logs, and cudnn-verify looks at the machine itself.";
  }

  document.getElementById("search").hidden = false;
  document.getElementById("search").addEventListener("submit", (event) => event.preventDefault());
  field.addEventListener("input", search);
  search();
})();
