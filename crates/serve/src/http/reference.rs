//! References in `Location` and `Content-Location`: which of them are on a host, and to what there.

/// What follows the authority in a reference that names this one, with any scheme; none if it names
/// another or none. A port that is its scheme's default counts as none. `scheme` is that of the
/// authority, and of a reference without one.
pub(crate) fn after_authority<'r>(reference: &'r str, scheme: &str, authority: &str) -> Option<&'r str> {
    let (own_scheme, rest) = match reference.split_once(':') {
        Some((own, rest)) if ["http", "https"].iter().any(|known| own.eq_ignore_ascii_case(known)) => (own, rest),
        Some(_) | None => (scheme, reference),
    };
    let rest = rest.strip_prefix("//")?;
    // Browsers read a backslash as a slash.
    let (named, rest) = rest.split_at(rest.find(['/', '\\', '?', '#']).unwrap_or(rest.len()));
    (without_default_port(own_scheme, named) == without_default_port(scheme, authority)).then_some(rest)
}

fn without_default_port(scheme: &str, authority: &str) -> String {
    let authority = authority.to_ascii_lowercase();
    let default = if scheme.eq_ignore_ascii_case("https") { ":443" } else { ":80" };
    let host = authority.strip_suffix(default).or_else(|| authority.strip_suffix(':'));
    host.map(str::to_owned).unwrap_or(authority)
}

/// What [`after_authority`] returned, as a reference without an authority that browsers resolve to
/// the same path.
pub(crate) fn rooted(rest: &str) -> String {
    // Browsers remove tabs, which could hide a second slash.
    let rest = rest.replace(char::is_control, "");
    match rest.as_bytes() {
        // Two slashes would begin an authority.
        [b'/' | b'\\', b'/' | b'\\', ..] | [b'\\', ..] => format!("/.{rest}"),
        [b'/', ..] => rest,
        _ => format!("/{rest}"),
    }
}

/// Path and query of a reference on the site at `authority`, in the answer to a request for
/// `target`. None if it is on another host.
pub(crate) fn target_on_site(reference: &str, target: &str, scheme: &str, authority: &str) -> Option<String> {
    let reference = reference.split('#').next()?;
    let base = target.split('?').next()?;
    let whole = match after_authority(reference, scheme, authority) {
        Some(rest) => rooted(rest),
        None if reference.is_empty() || reference.starts_with("//") || has_scheme(reference) => return None,
        None if reference.starts_with('/') => reference.to_owned(),
        None if reference.starts_with('?') => format!("{base}{reference}"),
        None => format!("{}/{reference}", base.rsplit_once('/')?.0),
    };
    Some(match whole.split_once('?') {
        Some((path, query)) => format!("{}?{query}", without_dot_segments(path)),
        None => without_dot_segments(&whole),
    })
}

fn has_scheme(reference: &str) -> bool {
    let first = reference.split(['/', '?']).next().unwrap_or_default();
    first.contains(':')
}

fn without_dot_segments(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        if segment == ".." {
            kept.pop();
        }
        match segment {
            "." | ".." if is_last => kept.push(""),
            "." | ".." => {}
            other => kept.push(other),
        }
    }
    format!("/{}", kept.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authority_is_compared_with_any_scheme_and_default_port() {
        for reference in
            ["https://app/x", "http://app/x", "HTTPS://APP/x", "//app/x", "https://app:443/x", "http://app:80/x"]
        {
            assert_eq!(after_authority(reference, "https", "app"), Some("/x"), "{reference}");
        }
        assert_eq!(after_authority("http://app:8443/x", "https", "app:8443"), Some("/x"));
        for other in ["https://app.evil/x", "https://app:8443/x", "https://u@app/x", "ftp://app/x", "/x", "app/x"] {
            assert_eq!(after_authority(other, "https", "app"), None, "{other}");
        }
    }

    #[test]
    fn rooted_reference_never_names_another_host() {
        for (rest, rooted_as) in [
            ("", "/"),
            ("?a", "/?a"),
            ("#a", "/#a"),
            ("/a//b", "/a//b"),
            ("//evil", "/.//evil"),
            ("/\\evil", "/./\\evil"),
            ("\\\\evil", "/.\\\\evil"),
            ("/\t/evil", "/.//evil"),
        ] {
            assert_eq!(rooted(rest), rooted_as, "{rest:?}");
        }
    }

    #[test]
    fn references_on_the_site_are_resolved() {
        let resolve = |reference| target_on_site(reference, "/shop/cart?x=1", "https", "www.acme.example");
        for (reference, target) in [
            ("/a?b=c#d", Some("/a?b=c")),
            ("item/7", Some("/shop/item/7")),
            ("../a/./b", Some("/a/b")),
            ("../../..", Some("/")),
            ("..", Some("/")),
            ("?page=2", Some("/shop/cart?page=2")),
            ("https://www.acme.example/a", Some("/a")),
            ("http://WWW.acme.example:80", Some("/")),
            ("//www.acme.example/a", Some("/a")),
            ("https://other.example/a", None),
            ("//other.example/a", None),
            ("mailto:a@b", None),
            ("#top", None),
            ("", None),
        ] {
            assert_eq!(resolve(reference).as_deref(), target, "{reference}");
        }
    }
}
