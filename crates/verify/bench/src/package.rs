//! How much a binary weighs.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};

/// Lambda unpacks this at a cold start.
const ZIP: &str = "
import io, sys, zipfile
archive = io.BytesIO()
with zipfile.ZipFile(archive, 'w', zipfile.ZIP_DEFLATED) as z:
    z.write(sys.argv[1], 'bootstrap')
print(len(archive.getvalue()))
";

/// The file as it is.
pub fn bytes(binary: &Path) -> anyhow::Result<u64> {
    Ok(binary.metadata().with_context(|| binary.display().to_string())?.len())
}

/// As a deployment package. Python makes it, which the project's scripts need anyway: no dependency for one figure.
pub fn zip_bytes(binary: &Path) -> anyhow::Result<u64> {
    let output = Command::new("python3").args(["-c", ZIP]).arg(binary).output().context("python3 packs the binary")?;
    if !output.status.success() {
        bail!("python3 could not pack {}: {}", binary.display(), String::from_utf8_lossy(&output.stderr));
    }
    String::from_utf8_lossy(&output.stdout).trim().parse().context("the size of the package")
}
