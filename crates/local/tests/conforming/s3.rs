//! S3: conditional writes and reads of few keys, and a listing after each.

use std::collections::BTreeMap;

use aws_sdk_s3::primitives::ByteStream;
use everfresh_core::clients::Clients;
use fastrand::Rng;

use super::{Facts, outcome};
use crate::support::bucket;

/// ETags of a request: that of some body, one that never matches, or `*`.
#[derive(Clone, Debug)]
pub(crate) enum Tag {
    OfBody(String),
    Another,
    Any,
}

#[derive(Clone, Debug)]
pub(crate) enum Operation {
    PutObject {
        key: String,
        body: String,
        metadata: Vec<(&'static str, &'static str)>,
        if_none_match: Option<Tag>,
        if_match: Option<Tag>,
    },
    GetObject {
        key: String,
        if_none_match: Option<Tag>,
        if_match: Option<Tag>,
        range: Option<&'static str>,
    },
    HeadObject {
        key: String,
        if_none_match: Option<Tag>,
    },
    DeleteObject {
        key: String,
    },
    ListObjectsV2 {
        prefix: &'static str,
        page: i32,
    },
}

const KEYS: [&str; 5] = ["acme/1", "acme/2/ü b+c%2F", "acme/2", "globex/1", "x"];
const BODIES: [&str; 4] = ["", "one", "two", "<html>three</html>"];

pub(crate) fn operation(rng: &mut Rng) -> Operation {
    let key = rng.choice(KEYS).unwrap().to_owned();
    let body = rng.choice(BODIES).unwrap().to_owned();
    let tag = |rng: &mut Rng| match rng.u32(0..5) {
        0 => Tag::Another,
        1 => Tag::Any,
        _ => Tag::OfBody(rng.choice(BODIES).unwrap().to_owned()),
    };
    match rng.u32(0..12) {
        0..4 => {
            let all = [("status", "200"), ("everfresh-version", "0001-a"), ("plain", "a b; c=\"d\"")];
            let metadata = all.into_iter().filter(|_| rng.bool()).collect();
            let (if_none_match, if_match) = match rng.u32(0..4) {
                0..2 => (Some(Tag::Any), None),
                2 => (None, Some(tag(rng)).filter(|tag| !matches!(tag, Tag::Any))),
                _ => (None, None),
            };
            Operation::PutObject { key, body, metadata, if_none_match, if_match }
        }
        4..8 => Operation::GetObject {
            key,
            if_none_match: rng.bool().then(|| tag(rng)),
            if_match: (rng.u32(0..4) == 0).then(|| tag(rng)),
            range: (rng.u32(0..4) == 0)
                .then(|| rng.choice(["bytes=0-1", "bytes=1-", "bytes=-2", "bytes=99-"]))
                .flatten(),
        },
        8 => Operation::HeadObject { key, if_none_match: rng.bool().then(|| tag(rng)) },
        9..11 => Operation::DeleteObject { key },
        _ => Operation::ListObjectsV2 {
            prefix: rng.choice(["", "acme/", "acme/2", "missing/"]).unwrap(),
            page: rng.i32(1..4),
        },
    }
}

pub(crate) struct Side {
    clients: Clients,
    bucket: String,
    /// ETag of each body on this side.
    etags: BTreeMap<String, String>,
}

impl super::Side for Side {
    type Operation = Operation;

    async fn new(clients: &Clients) -> Self {
        let bucket = bucket(clients).await;
        let mut etags = BTreeMap::new();
        for body in BODIES {
            let put =
                clients.s3.put_object().bucket(&bucket).key("etag").body(ByteStream::from_static(body.as_bytes()));
            etags.insert(body.to_owned(), put.send().await.unwrap().e_tag.unwrap());
        }
        clients.s3.delete_object().bucket(&bucket).key("etag").send().await.unwrap();
        Self { clients: clients.clone(), bucket, etags }
    }

    async fn execute(&mut self, operation: &Operation) -> Facts {
        let mut facts = Facts::new();
        let s3 = &self.clients.s3;
        match operation {
            Operation::PutObject { key, body, metadata, if_none_match, if_match } => {
                let mut put = s3.put_object().bucket(&self.bucket).key(key).content_type("text/html; charset=utf-8");
                for (name, value) in metadata {
                    put = put.metadata(*name, *value);
                }
                let put = put.cache_control("max-age=5").body(body.clone().into_bytes().into());
                let put =
                    put.set_if_none_match(self.tag(if_none_match.as_ref())).set_if_match(self.tag(if_match.as_ref()));
                let done = put.send().await;
                facts.insert("outcome", outcome(&done));
                facts.insert("etag", done.ok().and_then(|done| done.e_tag).unwrap_or_default());
            }
            Operation::GetObject { key, if_none_match, if_match, range } => {
                let get = s3.get_object().bucket(&self.bucket).key(key).set_range(range.map(str::to_owned));
                let get =
                    get.set_if_none_match(self.tag(if_none_match.as_ref())).set_if_match(self.tag(if_match.as_ref()));
                let got = get.send().await;
                facts.insert("outcome", outcome(&got));
                if let Ok(got) = got {
                    facts.insert("headers", headers(got.content_type(), got.cache_control(), got.e_tag()));
                    facts.insert("metadata", metadata(got.metadata()));
                    facts.insert("length", format!("{:?} of {:?}", got.content_length(), got.content_range()));
                    let body = got.body.collect().await.unwrap().to_vec();
                    facts.insert("body", String::from_utf8(body).unwrap());
                }
            }
            Operation::HeadObject { key, if_none_match } => {
                let head = s3.head_object().bucket(&self.bucket).key(key);
                let got = head.set_if_none_match(self.tag(if_none_match.as_ref())).send().await;
                facts.insert("outcome", outcome(&got));
                if let Ok(got) = got {
                    facts.insert("headers", headers(got.content_type(), got.cache_control(), got.e_tag()));
                    facts.insert("metadata", metadata(got.metadata()));
                    facts.insert("length", format!("{:?}", got.content_length()));
                }
            }
            Operation::DeleteObject { key } => {
                let deleted = s3.delete_object().bucket(&self.bucket).key(key).send().await;
                facts.insert("outcome", outcome(&deleted));
            }
            Operation::ListObjectsV2 { prefix, page } => {
                facts.insert("listing", self.listing(prefix, *page).await);
            }
        }
        facts.insert("bucket", self.listing("", 1000).await);
        facts
    }
}

impl Side {
    fn tag(&self, tag: Option<&Tag>) -> Option<String> {
        Some(match tag? {
            Tag::OfBody(body) => self.etags[body].clone(),
            Tag::Another => "\"another\"".to_owned(),
            Tag::Any => "*".to_owned(),
        })
    }

    /// Keys with sizes and ETags, page by page.
    async fn listing(&self, prefix: &str, page: i32) -> String {
        let pages = self.clients.s3.list_objects_v2().bucket(&self.bucket).prefix(prefix).into_paginator();
        let pages = pages.page_size(page).send().collect::<Result<Vec<_>, _>>().await.unwrap();
        let pages = pages.iter().map(|page| {
            let objects = page.contents().iter().map(|object| {
                format!("{} {} {}", object.key().unwrap(), object.size().unwrap(), object.e_tag().unwrap())
            });
            objects.collect::<Vec<_>>().join(", ")
        });
        pages.collect::<Vec<_>>().join(" | ")
    }
}

fn headers(content_type: Option<&str>, cache_control: Option<&str>, etag: Option<&str>) -> String {
    format!("{content_type:?} {cache_control:?} {etag:?}")
}

fn metadata(metadata: Option<&std::collections::HashMap<String, String>>) -> String {
    format!("{:?}", metadata.into_iter().flatten().collect::<BTreeMap<_, _>>())
}
