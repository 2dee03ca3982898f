"use strict";
// Keeps a page current: fetches it again and replaces the parts that are marked `data-live`; then asks once for what
// the sandboxes on it use. Text is only ever set as text.
(() => {
  const EVERY_MS = 5000;
  const WAITED = "counted by the sandbox's own kernel: what only waited for a processor is in it";
  const root = new URL(document.querySelector("link[rel=stylesheet]").getAttribute("href"), location.href);
  const usagePath = new URL("../usage", root);
  const stale = document.getElementById("stale");
  let used = {};
  let before = {};

  function say(text) {
    stale.textContent = text;
    stale.hidden = text === "";
  }

  function sameOf(focused, part) {
    const target = focused.getAttribute("href");
    return [...part.querySelectorAll(focused.localName)].find(
      (one) => one.getAttribute("href") === target && one.textContent === focused.textContent,
    );
  }

  // Replaces them; true where one was left as it was, since text of it is selected.
  function replaceParts(fresh) {
    const selection = getSelection();
    let kept = false;
    for (const part of document.querySelectorAll("[data-live]")) {
      const other = fresh.getElementById(part.id);
      if (!other) continue;
      if (!selection.isCollapsed && selection.containsNode(part, true)) {
        kept = true;
        continue;
      }
      const focused = part.contains(document.activeElement) ? document.activeElement : null;
      part.querySelectorAll("details").forEach((one, at) => {
        const same = other.querySelectorAll("details")[at];
        if (same) same.open = one.open;
      });
      part.replaceWith(document.adoptNode(other));
      if (focused) sameOf(focused, other)?.focus({ preventScroll: true });
    }
    return kept;
  }

  function showUsage() {
    for (const cell of document.querySelectorAll("[data-usage]")) {
      const one = used[cell.dataset.usage];
      const text = one ? one[cell.dataset.of] : "";
      cell.textContent = text && cell.dataset.unit ? `${cell.dataset.unit} ${text}` : text ?? "";
      if (cell.dataset.of?.startsWith("cpu")) cell.title = one && !one.cpu_by_node ? WAITED : "";
    }
  }

  async function fetchUsage() {
    const ids = [...new Set([...document.querySelectorAll("[data-usage]")].map((cell) => cell.dataset.usage))];
    if (ids.length === 0) return;
    const address = new URL(usagePath);
    for (const id of ids) address.searchParams.append("id", id);
    const answer = await fetch(address, { cache: "no-store" });
    if (!answer.ok) {
      used = {};
      showUsage();
      return;
    }
    const told = await answer.json();
    const now = performance.now();
    for (const [id, one] of Object.entries(told)) {
      const last = before[id];
      const goesOn = last && now > last.at && last.by_node === one.cpu_by_node;
      const share = goesOn ? (one.cpu_ms - last.cpu_ms) / (now - last.at) : null;
      const about = one.cpu_by_node ? "" : "~ ";
      one.cpu_time = `${about}${(one.cpu_ms / 1000).toFixed(1)} s in all`;
      one.cpu = share === null ? one.cpu_time : `${about}${Math.max(0, Math.round(100 * share))} %`;
      one.cpu_share = share === null ? "" : one.cpu;
      before[id] = { cpu_ms: one.cpu_ms, by_node: one.cpu_by_node, at: now };
    }
    used = told;
    showUsage();
  }

  async function refresh() {
    const answer = await fetch(location.href, { cache: "no-store" });
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (!answer.ok || !fresh.getElementById("as-of")) {
      const problem = fresh.querySelector("[data-problem]");
      say(`not updated: ${problem ? problem.textContent : answer.status}`);
      return;
    }
    const kept = replaceParts(fresh);
    showUsage();
    say(kept ? "a part is not updated while its text is selected" : "");
  }

  async function turn() {
    if (!document.hidden) {
      try {
        await refresh();
        await fetchUsage();
      } catch {
        say("not updated: `rollbox ui` does not answer; it may have ended");
      }
    }
    setTimeout(turn, EVERY_MS);
  }

  fetchUsage().catch(() => {});
  setTimeout(turn, EVERY_MS);
})();
