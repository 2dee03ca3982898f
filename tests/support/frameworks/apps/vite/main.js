import { text } from "./text.js";

const show = (text) => (document.querySelector("p").textContent = text);
show(text);
import.meta.hot.accept("./text.js", (changed) => show(`${changed.text}, not loaded anew: ${window.kept}`));
window.kept ??= true;
