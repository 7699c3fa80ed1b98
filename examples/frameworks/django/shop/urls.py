import json
import os

from django.contrib import admin
from django.contrib.auth.decorators import login_required
from django.contrib.auth.views import LoginView
from django.core.exceptions import PermissionDenied
from django.http import Http404
from django.shortcuts import redirect, render
from django.urls import include, path
from django.views.generic import RedirectView


def content():
    with open(os.environ["CONTENT"]) as file:
        return json.load(file)


def home(request):
    return render(request, "page.html", {"heading": "Home", "picture": True})


def about(request):
    return render(request, "page.html", {"heading": "About"})


def article(request):
    return render(request, "page.html", {"heading": content()["headline"]})


def secret(request):
    """A page that an editor can take down."""
    word = content()["secret"]
    if word == "login":
        return redirect("/accounts/login/")
    if word == "gone":
        raise Http404
    if word == "forbidden":
        raise PermissionDenied
    return render(request, "page.html", {"heading": "Secret plans"})


@login_required
def account(request):
    return render(request, "page.html", {"heading": f"Account of {request.user.username}"})


def contact(request):
    return render(request, "contact.html", {"heading": "Contact", "message": request.POST.get("message")})


urlpatterns = [
    path("", home),
    path("about/", about),
    path("article/", article),
    path("secret/", secret),
    path("account/", account),
    path("contact/", contact),
    path("old/", RedirectView.as_view(url="/about/", permanent=True)),
    path("accounts/login/", LoginView.as_view(template_name="login.html", extra_context={"heading": "Login"})),
    path("accounts/", include("django.contrib.auth.urls")),
    path("admin/", admin.site.urls),
]
