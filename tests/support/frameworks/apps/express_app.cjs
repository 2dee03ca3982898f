// Express with sessions, ws and multer, told to trust its proxy: express_app.cjs PORT
const crypto = require("node:crypto");
const { EventEmitter, once } = require("node:events");
const express = require("express");
const session = require("express-session");
const multer = require("multer");
const { WebSocketServer } = require("ws");

const go = new EventEmitter();
const app = express();
app.set("trust proxy", true).enable("strict routing");
app.use(session({ secret: "of tests", resave: false, saveUninitialized: true, cookie: { sameSite: "lax" } }));
app.use(express.urlencoded());
app.get("/", (request, response) => {
  request.session.token = crypto.randomUUID();
  response.send(`<form method="post" action="send"><input name="token" value="${request.session.token}"></form>`);
});
app.post("/send", (request, response) => {
  if (request.body.token !== request.session.token) return response.sendStatus(403);
  request.session.said = request.body.said;
  response.redirect(303, `${request.protocol}://${request.host}/done`);
});
app.get("/done", (request, response) => response.send(`${request.session.said} at ${request.path}`));
app.get("/slash/", (request, response) => response.send("slash"));
app.use("/slash", express.static(__dirname));
app.post("/upload", multer().single("file"), (request, response) => {
  const digest = crypto.createHash("sha256").update(request.file.buffer).digest("hex");
  response.send(`${request.file.originalname} ${digest}`);
});
app.post("/empty", express.raw({ type: () => true }), (request, response) => {
  go.emit("go");
  response.send(request.get("content-length"));
});
app.get("/events", async (request, response) => {
  response.type("text/event-stream").write("data: first\n\n");
  await once(go, "go");
  response.end("data: second\n\n");
});
const server = app.listen(Number(process.argv[2]), "127.0.0.1");
new WebSocketServer({ server, path: "/ws" }).on("connection", (socket, request) => {
  socket.send(request.headers.origin);
  socket.on("message", (message) => {
    socket.send(message.toString());
    socket.close();
  });
});
