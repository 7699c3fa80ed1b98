//! The locations of a sitemap.
//!
//! Only the text of `<loc>` elements is read: no DTD, no entities but the five of XML and numbers,
//! no references to other files.

use anyhow::{Context, bail};

/// The URLs of the sitemap, as they are in it.
pub(super) fn locations(xml: &str) -> anyhow::Result<Vec<String>> {
    let mut locations = Vec::new();
    let mut rest = xml;
    while let Some(at) = rest.find('<') {
        rest = &rest[at..];
        if rest.starts_with("<!--") {
            rest = after(rest, "-->").context("a comment does not end")?;
            continue;
        }
        if rest.starts_with("<!DOCTYPE") {
            bail!("a sitemap has no DOCTYPE");
        }
        let end = rest.find('>').context("a tag does not end")?;
        let tag = &rest[1..end];
        rest = &rest[end + 1..];
        match tag.split_whitespace().next() {
            Some("sitemapindex") => bail!("it is an index of sitemaps: prewarm the sitemaps that it lists"),
            Some("loc") => {
                let end = rest.find("</loc").context("<loc> does not end")?;
                locations.push(text(&rest[..end])?);
                rest = &rest[end..];
            }
            Some(_) | None => {}
        }
    }
    Ok(locations)
}

fn after<'x>(text: &'x str, end: &str) -> Option<&'x str> {
    text.find(end).map(|at| &text[at + end.len()..])
}

fn text(raw: &str) -> anyhow::Result<String> {
    let raw = raw.trim();
    if let Some(data) = raw.strip_prefix("<![CDATA[").and_then(|data| data.strip_suffix("]]>")) {
        return Ok(data.trim().to_owned());
    }
    let mut text = String::new();
    let mut rest = raw;
    while let Some((before, entity)) = rest.split_once('&') {
        text.push_str(before);
        let (name, after) = entity.split_once(';').context("& without ;")?;
        text.push(character(name).with_context(|| format!("&{name}; is not known"))?);
        rest = after;
    }
    text.push_str(rest);
    Ok(text)
}

fn character(name: &str) -> Option<char> {
    match name {
        "amp" => Some('&'),
        "lt" => Some('<'),
        "gt" => Some('>'),
        "quot" => Some('"'),
        "apos" => Some('\''),
        _ => {
            let number = name.strip_prefix('#')?;
            let code = match number.strip_prefix('x') {
                Some(hex) => u32::from_str_radix(hex, 16),
                None => number.parse(),
            };
            char::from_u32(code.ok()?)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_are_read_in_order() {
        let xml = "<?xml version=\"1.0\"?>\n<urlset xmlns=\"x\"><!-- <loc>no</loc> -->\n<url><loc> https://a.example/ </loc>\
                   <image:loc>https://a.example/i.png</image:loc></url>\
                   <url><loc>https://a.example/b?x=1&amp;y=&#50;</loc></url>\
                   <url><loc><![CDATA[https://a.example/c?x&y]]></loc></url></urlset>";
        let expected = ["https://a.example/", "https://a.example/b?x=1&y=2", "https://a.example/c?x&y"];
        assert_eq!(locations(xml).unwrap(), expected);
    }

    #[test]
    fn unsafe_or_broken_files_are_refused() {
        for xml in [
            "<!DOCTYPE x [<!ENTITY a SYSTEM \"file:///etc/passwd\">]><urlset/>",
            "<sitemapindex><sitemap><loc>https://a.example/1.xml</loc></sitemap></sitemapindex>",
            "<loc>https://a.example/&unknown;</loc>",
            "<loc>https://a.example/",
            "<!-- no end",
            "<url",
        ] {
            assert!(locations(xml).is_err(), "{xml}");
        }
        assert_eq!(locations("no sitemap").unwrap(), Vec::<String>::new());
    }
}
