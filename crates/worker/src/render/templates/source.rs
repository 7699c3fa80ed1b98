//! Where templates are read from: a folder or memory.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirEntry};
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::page::TemplateError;

/// The names of all templates, with `/` between folder and file on every system.
pub(super) type Names = BTreeSet<String>;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Source {
    Folder(PathBuf),
    Memory(BTreeMap<String, String>),
}

impl Source {
    /// All readable templates, without hidden files and symbolic links.
    pub(super) fn names(&self) -> Result<Names, TemplateError> {
        match self {
            Source::Memory(templates) => Ok(templates.keys().cloned().collect()),
            Source::Folder(root) => {
                let mut names = Names::new();
                collect(root, "", &mut names)?;
                Ok(names)
            }
        }
    }

    /// The text of one of [`Source::names`]. Does not check the name: pass no other one.
    pub(super) fn read(&self, name: &str) -> Result<String, TemplateError> {
        match self {
            Source::Memory(templates) => {
                let missing = || TemplateError::Read { path: name.into(), source: io::ErrorKind::NotFound.into() };
                templates.get(name).cloned().ok_or_else(missing)
            }
            Source::Folder(root) => {
                let path = root.join(name);
                fs::read_to_string(&path).map_err(|source| TemplateError::Read { path, source })
            }
        }
    }
}

fn collect(folder: &Path, prefix: &str, names: &mut Names) -> Result<(), TemplateError> {
    let failed = |source| TemplateError::Read { path: folder.to_owned(), source };
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let Some(name) = visible_name(&entry) else {
            continue;
        };
        // The entry's own type: a symbolic link is neither a file nor a folder.
        let kind = entry.file_type().map_err(failed)?;
        if kind.is_dir() {
            collect(&entry.path(), &format!("{prefix}{name}/"), names)?;
        } else if kind.is_file() {
            names.insert(format!("{prefix}{name}"));
        }
    }
    Ok(())
}

fn visible_name(entry: &DirEntry) -> Option<String> {
    let name = entry.file_name().into_string().ok()?;
    (!name.starts_with('.')).then_some(name)
}
