"""A Flask app with the session in a cookie, and forms."""
import json, os

from flask import Flask, abort, make_response, redirect, render_template_string, request, session, url_for
from werkzeug.middleware.proxy_fix import ProxyFix

app = Flask(__name__)
app.secret_key = "only for this example"
# Behind a proxy: the scheme, host and address of the visitor come from its headers.
app.wsgi_app = ProxyFix(app.wsgi_app, x_for=1, x_proto=1, x_host=1)

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Flask</title><link rel="icon" href="data:,">
<link rel="stylesheet" href="{{ url_for('static', filename='style.css', v=2) }}"></head>
<body><nav><a href="/">home</a> <a href="/account">account</a></nav><main><h1>{{ heading }}</h1>{{ main|safe }}</main></body></html>
"""
LOGIN = '<form method="post"><input name="user"><button>Log in</button></form>'
CONTACT = '<form method="post"><input name="message"><button>Send</button></form>'


def content():
    with open(os.environ["CONTENT"]) as file:
        return json.load(file)


def page(heading, main="", status=200):
    return render_template_string(PAGE, heading=heading, main=main), status


@app.get("/")
def home():
    return page("Home", '<img src="/photo.svg" alt="a photo">')


@app.get("/article")
def article():
    return page(content()["headline"])


@app.get("/secret")
def secret():
    word = content()["secret"]
    if word == "login":
        return redirect(url_for("login"))
    if word != "open":
        abort({"gone": 404, "forbidden": 403, "unauthorized": 401}[word])
    return page("Secret plans")


@app.route("/login", methods=["GET", "POST"])
def login():
    if request.method == "GET":
        return page("Login", LOGIN)
    session["user"] = request.form["user"]
    answer = redirect(url_for("account"))
    answer.set_cookie("theme", "dark", path="/")
    answer.set_cookie("seen", "1", path="/", max_age=3600)
    return answer


@app.get("/account")
def account():
    if "user" not in session:
        return redirect(url_for("login"))
    return page(f"Account of {session['user']}")


@app.route("/contact", methods=["GET", "POST"])
def contact():
    if request.method == "GET":
        return page("Contact", CONTACT)
    return page("Contact", render_template_string('<p id="answer">received: {{ m }}</p>', m=request.form["message"]))


@app.get("/old")
def old():
    return redirect(url_for("home"), 301)


@app.get("/photo.svg")
def photo():
    picture = '<svg xmlns="http://www.w3.org/2000/svg" width="64" height="48"><rect width="64" height="48" fill="teal"/></svg>'
    answer = make_response(picture, {"content-type": "image/svg+xml", "cache-control": "public, max-age=31536000, immutable"})
    answer.headers["x-query"] = request.query_string.decode()
    return answer


@app.errorhandler(404)
def missing(_):
    return page("No such page here", status=404)
