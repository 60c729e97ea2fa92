// The policy as a script. The history comes as a string of JSON.
const SECRET = "BEGIN PRIVATE KEY";

function isClean(block) {
  if (block.type === "text") return !block.text.includes(SECRET);
  if (block.type === "tool-result") return block.content.every(isClean);
  return true;
}

function normalised(path) {
  const parts = [];
  for (const part of path.split("/")) {
    if (part === "" || part === ".") continue;
    if (part === ".." && parts.length > 0 && parts[parts.length - 1] !== "..") parts.pop();
    else parts.push(part);
  }
  return parts.join("/");
}

function allows(history, all) {
  const messages = JSON.parse(history);
  const last = messages.slice(-2);
  if (!(all ? messages : last).every((message) => message.content.every(isClean))) return false;
  for (const message of last) {
    for (const block of message.content) {
      if (block.type === "tool-call") {
        const path = normalised(JSON.parse(block.arguments).path);
        return block.name === "read" && path.startsWith("src/");
      }
    }
  }
  return false;
}
