//! The S3 behaviour that artifacts rely on, through the real SDK.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use aws_sdk_s3::error::ProvideErrorMetadata;
use aws_sdk_s3::primitives::ByteStream;
use everfresh_core::clients::Clients;
use support::{bucket, clients};

async fn put(clients: &Clients, bucket: &str, key: &str, body: &[u8]) {
    let body = ByteStream::from(body.to_vec());
    clients.s3.put_object().bucket(bucket).key(key).body(body).send().await.unwrap();
}

async fn read(clients: &Clients, bucket: &str, key: &str) -> Vec<u8> {
    let got = clients.s3.get_object().bucket(bucket).key(key).send().await.unwrap();
    got.body.collect().await.unwrap().to_vec()
}

#[tokio::test]
async fn object_is_returned_with_its_metadata() {
    let clients = clients().await;
    let bucket = bucket(&clients).await;
    let put = clients.s3.put_object().bucket(&bucket).key("page").body(ByteStream::from_static(b"<html>"));
    let put = put.content_type("text/html; charset=utf-8").cache_control("max-age=5").metadata("status", "200");
    let etag = put.send().await.unwrap().e_tag.unwrap();
    let got = clients.s3.get_object().bucket(&bucket).key("page").send().await.unwrap();
    assert_eq!(got.content_type(), Some("text/html; charset=utf-8"));
    assert_eq!(got.cache_control(), Some("max-age=5"));
    assert_eq!(got.metadata().unwrap()["status"], "200");
    assert_eq!(got.e_tag(), Some(etag.as_str()));
    assert_eq!(got.body.collect().await.unwrap().to_vec(), b"<html>");
    let head = clients.s3.head_object().bucket(&bucket).key("page").send().await.unwrap();
    assert_eq!((head.content_length(), head.e_tag()), (Some(6), Some(etag.as_str())));
    assert_eq!(head.metadata().unwrap()["status"], "200");
}

#[tokio::test]
async fn if_none_match_star_has_exactly_one_winner() {
    let clients = clients().await;
    let bucket = bucket(&clients).await;
    for round in 0..100 {
        let key = format!("acme/page/{round}");
        let writers = (0..32u32).map(|writer| {
            let (clients, bucket, key) = (clients.clone(), bucket.clone(), key.clone());
            tokio::spawn(async move {
                let body = ByteStream::from(format!("by {writer}").into_bytes());
                let put = clients.s3.put_object().bucket(bucket).key(key).body(body).if_none_match("*");
                match put.send().await {
                    Ok(_) => Some(writer),
                    Err(error) => {
                        let code = error.code().map(str::to_owned);
                        // Real S3 may also answer 409 while another conditional write is running.
                        let refused = ["PreconditionFailed", "ConditionalRequestConflict"];
                        assert!(code.as_deref().is_some_and(|code| refused.contains(&code)), "{error:?}");
                        None
                    }
                }
            })
        });
        let finished = futures::future::join_all(writers).await;
        let winners: Vec<u32> = finished.into_iter().filter_map(Result::unwrap).collect();
        assert_eq!(winners.len(), 1, "round {round}");
        assert_eq!(read(&clients, &bucket, &key).await, format!("by {}", winners[0]).into_bytes());
    }
}

#[tokio::test]
async fn read_during_overwrites_returns_one_whole_version() {
    let clients = clients().await;
    let bucket = bucket(&clients).await;
    put(&clients, &bucket, "page", &[0; 50_000]).await;
    let writer = {
        let (clients, bucket) = (clients.clone(), bucket.clone());
        tokio::spawn(async move {
            for version in 1..40u8 {
                put(&clients, &bucket, "page", &[version; 50_000]).await;
            }
        })
    };
    while !writer.is_finished() {
        let body = read(&clients, &bucket, "page").await;
        assert_eq!(body.len(), 50_000);
        assert!(body.iter().all(|byte| *byte == body[0]), "two versions in one body");
    }
    writer.await.unwrap();
}

#[tokio::test]
async fn conditional_reads_answer_304_and_412() {
    let clients = clients().await;
    let bucket = bucket(&clients).await;
    put(&clients, &bucket, "page", b"body").await;
    let etag = clients.s3.head_object().bucket(&bucket).key("page").send().await.unwrap().e_tag.unwrap();
    let get = || clients.s3.get_object().bucket(&bucket).key("page");
    let not_modified = get().if_none_match(&etag).send().await.unwrap_err();
    let not_modified = not_modified.raw_response().unwrap();
    assert_eq!(not_modified.status().as_u16(), 304);
    assert_eq!(not_modified.body().bytes(), Some(&b""[..]), "a 304 has no body");
    let failed = get().if_match("\"another\"").send().await.unwrap_err();
    assert_eq!(failed.raw_response().unwrap().status().as_u16(), 412);
    get().if_match(&etag).send().await.unwrap();
}

#[tokio::test]
async fn range_request_returns_part_and_content_range() {
    let clients = clients().await;
    let bucket = bucket(&clients).await;
    put(&clients, &bucket, "page", b"0123456789").await;
    let got = clients.s3.get_object().bucket(&bucket).key("page").range("bytes=2-4").send().await.unwrap();
    assert_eq!(got.content_range(), Some("bytes 2-4/10"));
    assert_eq!(got.body.collect().await.unwrap().to_vec(), b"234");
    let beyond = clients.s3.get_object().bucket(&bucket).key("page").range("bytes=10-").send().await.unwrap_err();
    assert_eq!(beyond.raw_response().unwrap().status().as_u16(), 416);
}

#[tokio::test]
async fn suffix_range_of_an_empty_object_is_empty() {
    let clients = clients().await;
    let bucket = bucket(&clients).await;
    put(&clients, &bucket, "empty", b"").await;
    let get = |range: &str| clients.s3.get_object().bucket(&bucket).key("empty").range(range).send();
    let last = get("bytes=-2").await.unwrap();
    // S3 returns no Content-Range; an emulator may return an impossible one.
    assert!(!last.content_range().is_some_and(|range| range.starts_with("bytes 0-0")), "{last:?}");
    assert_eq!(last.body.collect().await.unwrap().to_vec(), b"");
    assert_eq!(get("bytes=0-").await.unwrap_err().raw_response().unwrap().status().as_u16(), 416);
}

#[tokio::test]
async fn if_match_requires_an_object_with_that_etag() {
    let clients = clients().await;
    let bucket = bucket(&clients).await;
    let replace = |etag: &str| clients.s3.put_object().bucket(&bucket).key("page").if_match(etag).send();
    assert_eq!(replace("\"any\"").await.unwrap_err().code(), Some("NoSuchKey"));
    put(&clients, &bucket, "page", b"body").await;
    assert_eq!(replace("\"any\"").await.unwrap_err().code(), Some("PreconditionFailed"));
    let etag = clients.s3.head_object().bucket(&bucket).key("page").send().await.unwrap().e_tag.unwrap();
    replace(&etag).await.unwrap();
}

#[tokio::test]
async fn keys_are_never_file_paths() {
    let clients = clients().await;
    let bucket = bucket(&clients).await;
    let long = "x".repeat(1024);
    let keys = [
        "..",
        "../../etc/passwd",
        "a/../b",
        "a//b",
        "./a",
        "a b+c%2Fd?e#f&g=h",
        "ключ/页面/🦀",
        "'quote\"",
        long.as_str(),
    ];
    for key in keys {
        put(&clients, &bucket, key, key.as_bytes()).await;
    }
    for key in keys {
        assert_eq!(read(&clients, &bucket, key).await, key.as_bytes(), "{key}");
    }
    let listed = clients.s3.list_objects_v2().bucket(&bucket).send().await.unwrap();
    let mut listed: Vec<&str> = listed.contents().iter().filter_map(|object| object.key()).collect();
    listed.sort_unstable();
    let mut expected = keys;
    expected.sort_unstable();
    assert_eq!(listed, expected);
}

#[tokio::test]
async fn listing_is_paged_by_prefix_with_etags() {
    let clients = clients().await;
    let bucket = bucket(&clients).await;
    for index in 0..5 {
        put(&clients, &bucket, &format!("acme/{index}"), b"body").await;
    }
    put(&clients, &bucket, "other/0", b"body").await;
    let pages = clients.s3.list_objects_v2().bucket(&bucket).prefix("acme/").into_paginator().page_size(2).send();
    let pages: Vec<_> = pages.collect::<Result<_, _>>().await.unwrap();
    let sizes: Vec<usize> = pages.iter().map(|page| page.contents().len()).collect();
    assert_eq!(sizes, [2, 2, 1]);
    let head = clients.s3.head_object().bucket(&bucket).key("acme/0").send().await.unwrap();
    assert_eq!(pages[0].contents()[0].e_tag(), head.e_tag());
}

#[tokio::test]
async fn missing_bucket_and_object_are_reported() {
    let clients = clients().await;
    let bucket = bucket(&clients).await;
    let missing = clients.s3.get_object().bucket(&bucket).key("nothing").send().await.unwrap_err();
    assert!(missing.into_service_error().is_no_such_key());
    let nowhere = clients.s3.get_object().bucket("no-such-bucket-at-all").key("nothing").send().await.unwrap_err();
    assert_eq!(nowhere.code(), Some("NoSuchBucket"));
    let head = clients.s3.head_object().bucket(&bucket).key("nothing").send().await.unwrap_err();
    assert!(head.into_service_error().is_not_found());
    clients
        .s3
        .delete_object()
        .bucket(&bucket)
        .key("nothing")
        .send()
        .await
        .expect("deleting a missing object is not an error");
}

#[tokio::test]
async fn deleted_object_is_gone() {
    let clients = clients().await;
    let bucket = bucket(&clients).await;
    put(&clients, &bucket, "page", b"body").await;
    clients.s3.delete_object().bucket(&bucket).key("page").send().await.unwrap();
    assert!(clients.s3.get_object().bucket(&bucket).key("page").send().await.is_err());
}
