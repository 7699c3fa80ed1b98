# Puts cargo-lambda on the path; for scripts that stand in the project's folder. Its wheel carries the binary and brings Zig along, which
# links for Lambda's glibc whatever this machine's is. A venv in the build folder leaves the system alone.
[ -x target/venv/bin/cargo-lambda ] || {
    python3 -m venv target/venv
    target/venv/bin/pip install --quiet cargo-lambda==1.9.2 ziglang==0.17.0
}
export PATH="$PWD/target/venv/bin:$PATH"
