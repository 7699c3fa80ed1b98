# The map of scripts/: `just --list`. Each recipe forwards its arguments to the script of the same
# name; `just` is optional, every script runs without it.
set positional-arguments

[private]
default:
    @{{ just_executable() }} --list --unsorted

# all checks that a change must pass; --quick (Rust only), --no-install
[group('every change')]
test *args:
    @scripts/test "$@"

# SAM, cfn-lint and the rules of infra/policy for the templates
[group('every change')]
template *args:
    @scripts/template "$@"

# invoke the worker and the serving function with every sample event in events/
[group('every change')]
invoke *args:
    @scripts/invoke "$@"

# compare the embedded engines with ministack, another AWS emulator
[group('every change')]
conformance *args:
    @scripts/conformance "$@"

# deploy template.yaml to an emulator that enforces roles, and use it as clients do
[group('every change')]
e2e *args:
    @scripts/e2e "$@"

# install the clients of producers/, and use them while network, `dev` and SQS fail
[group('every change')]
clients *args:
    @scripts/clients "$@"

# run Varnish and nginx in front of `everfresh dev`
[group('every change')]
shared-cache *args:
    @scripts/shared-cache "$@"

# use real apps behind `everfresh dev` with Chromium; --quick, --only NAME
[group('every change')]
frameworks *args:
    @scripts/frameworks "$@"

# run the test suite for HTTP caches against nginx, Varnish and `everfresh dev`
[group('evidence')]
http-cache-tests *args:
    @scripts/http-cache-tests "$@"

# run functions of an earlier commit with today's, on one table; --old REF
[group('evidence')]
rollout *args:
    @scripts/rollout "$@"

# measure the operator's commands on 100,000 pages; --pages N
[group('evidence')]
many-pages *args:
    @scripts/many-pages "$@"

# check the model of the protocol in every order of events; --quick
[group('evidence')]
model *args:
    @scripts/model "$@"

# run the real code under faults, by seed: --seeds N, --replay SEED, --without GUARD
[group('evidence')]
simulate *args:
    @scripts/simulate "$@"

# change pages in real time on the local stack, and count lost changes
[group('evidence')]
load *args:
    @scripts/load "$@"

# fuzz each target for SECONDS
[group('evidence')]
fuzz *args:
    @scripts/fuzz "$@"

# mutate the code, and check that a test fails each time; --list, or a file name
[group('evidence')]
mutants *args:
    @scripts/mutants "$@"

# licences, bans, sources, and a bill of materials per function
[group('evidence')]
supply-chain *args:
    @scripts/supply-chain "$@"

# measure size, CPU time and memory of the functions
[group('evidence')]
bench *args:
    @scripts/bench "$@"

# run all checks behind docs/evidence.md; --quick, --only PART, --write
[group('evidence')]
prove *args:
    @scripts/prove "$@"

# build and zip the functions: --arm64 (default), --x86-64, --host, --sam
[group('release')]
package *args:
    @scripts/package "$@"

# sam build and sam deploy, with a new version of each function
[group('release')]
deploy *args:
    @scripts/deploy "$@"
