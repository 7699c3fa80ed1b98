//! The size of a binary, plain and zipped.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};

/// Zips a binary as `bootstrap`, as a deployment package has it.
const ZIP: &str = "
import io, sys, zipfile
archive = io.BytesIO()
with zipfile.ZipFile(archive, 'w', zipfile.ZIP_DEFLATED) as z:
    z.write(sys.argv[1], 'bootstrap')
print(len(archive.getvalue()))
";

pub fn bytes(binary: &Path) -> anyhow::Result<u64> {
    Ok(binary.metadata().with_context(|| binary.display().to_string())?.len())
}

/// The size as a deployment package. Python, which the project's scripts need anyway, zips it: no
/// dependency for one figure.
pub fn zip_bytes(binary: &Path) -> anyhow::Result<u64> {
    let output =
        Command::new("python3").args(["-c", ZIP]).arg(binary).output().context("run python3 to zip the binary")?;
    if !output.status.success() {
        bail!("python3 failed to zip {}: {}", binary.display(), String::from_utf8_lossy(&output.stderr));
    }
    String::from_utf8_lossy(&output.stdout).trim().parse().context("parse the size of the package")
}
