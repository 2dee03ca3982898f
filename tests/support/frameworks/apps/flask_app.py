"""Flask with forms of Flask-WTF: flask_app.py PORT [behind]; `behind` a proxy it honours what that says."""

import hashlib
import sys
import threading
from collections.abc import Iterator

from flask import Flask, Response, redirect, render_template_string, request, session, url_for
from flask_wtf import CSRFProtect
from werkzeug.middleware.proxy_fix import ProxyFix

GO = threading.Event()
app = Flask(__name__)
app.config.update(SECRET_KEY="of tests", SESSION_COOKIE_SECURE=True, SESSION_COOKIE_SAMESITE="Lax")
CSRFProtect(app)
FORM = """<form method="post" action="{{ url_for('send') if request.script_root else 'send' }}">
<input name="csrf_token" value="{{ csrf_token() }}"></form>"""


@app.get("/")
def form() -> str:
    return render_template_string(FORM)


@app.post("/send")
def send() -> Response:
    session["said"] = request.form["said"]
    return redirect(url_for("done", _external="absolute" in request.form))


@app.get("/done")
def done() -> str:
    return f"{session['said']} at {request.path}"


@app.get("/slash/")
def slash() -> str:
    return "slash"


@app.post("/upload")
@app.extensions["csrf"].exempt
def upload() -> str:
    sent = request.files["file"]
    return f"{sent.filename} {hashlib.sha256(sent.read()).hexdigest()}"


@app.post("/empty")
@app.extensions["csrf"].exempt
def empty() -> str:
    GO.set()
    return str(len(request.get_data()))


@app.get("/events")
def events() -> Response:
    def told() -> Iterator[str]:
        yield "data: first\n\n"
        GO.wait()
        GO.clear()
        yield "data: second\n\n"

    return Response(told(), mimetype="text/event-stream")


if __name__ == "__main__":
    if "behind" in sys.argv:
        app.wsgi_app = ProxyFix(app.wsgi_app, x_for=1, x_proto=1, x_host=1, x_port=1, x_prefix=1)
    app.run("127.0.0.1", int(sys.argv[1]), threaded=True)
