//! Content codings of fetched pages: decoded, and never more than the limits.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod client;

use std::io::Write;

use everfresh_core::domain::artifact::Rendered;
use everfresh_core::render::RenderFailure;
use everfresh_origin::OriginRequest;
use everfresh_testing::{Server, chain};
use flate2::Compression;
use flate2::write::GzEncoder;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use self::client::{headers, origin, origins, page, pass, read, visit};

/// [`plain`], and half a mebibyte of zeros, as the reference encoder writes them.
const BROTLI_PAGE: &str = "1b2005f88dd4624d3c31d43c656c6fea05ad0b998415c37403daf463122ea6d6311c0c420c";
const BROTLI_ZEROS: &str = "5bffff877f02201e0b0472ef0f00";

/// [`plain`] in a frame with a window of 128 MiB.
const ZSTD_LARGE_WINDOW: &str =
    "28b52ffd0088150100d03c68746d6c3e68656c6c6f206f726967696e203c2f68746d6c3e010009827f8601";

fn plain() -> Vec<u8> {
    format!("<html>{}</html>", "hello origin ".repeat(100)).into_bytes()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    compress_to_vec(bytes, CompressionLevel::Fastest)
}

fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

/// Each coding's name with the page in it.
fn coded_pages() -> Vec<(&'static str, Vec<u8>)> {
    vec![("gzip", gzip(&plain())), ("br", hex(BROTLI_PAGE)), ("zstd", zstd(&plain()))]
}

fn response(coding: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Encoding: {coding}\r\nVary: Accept-Encoding\r\nContent-Digest: sha-256=:eA==:\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

async fn fetch(coding: &str, body: &[u8]) -> Result<Rendered, RenderFailure> {
    let server = Server::says(response(coding, body)).await;
    origins().with_decoding().fetch(&origin(&server.url()), page()).await
}

#[tokio::test]
async fn coded_page_is_decoded_and_its_headers_follow() {
    for (coding, body) in coded_pages() {
        let rendered = fetch(coding, &body).await.unwrap();
        assert_eq!(rendered.body, plain(), "{coding}");
        assert_eq!(rendered.headers, [("vary".to_owned(), "Accept-Encoding".to_owned())], "{coding}");
        assert_eq!(rendered.declared_bytes, None, "{coding}");
    }
}

#[tokio::test]
async fn only_a_decoding_fetch_accepts_codings() {
    let server = Server::says("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    let url = origin(&server.url());
    origins().fetch(&url, page()).await.unwrap();
    origins().with_decoding().fetch(&url, page()).await.unwrap();
    let [plain, decoding] = &server.requests()[..] else { panic!("{:?}", server.requests()) };
    assert!(plain.contains("\r\naccept-encoding: identity\r\n"), "{plain}");
    assert!(decoding.contains("\r\naccept-encoding: gzip, br, zstd\r\n"), "{decoding}");
}

#[tokio::test]
async fn spellings_and_repeated_streams_are_decoded() {
    let twice = [plain(), plain()].concat();
    let gzip_twice = [gzip(&plain()), gzip(&plain())].concat();
    let skippable = [&[0x50, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 7, 7][..], &zstd(&plain()), &zstd(&plain())].concat();
    for (coding, body, expected) in [
        ("GZip", gzip(&plain()), plain()),
        ("x-gzip", gzip(&plain()), plain()),
        ("identity", plain(), plain()),
        ("identity, gzip,", gzip(&plain()), plain()),
        ("gzip, zstd", zstd(&gzip(&plain())), plain()),
        ("gzip\r\nContent-Encoding: zstd", zstd(&gzip(&plain())), plain()),
        ("zstd, gzip", gzip(&zstd(&plain())), plain()),
        ("br, gzip", gzip(&hex(BROTLI_PAGE)), plain()),
        ("gzip", gzip_twice, twice.clone()),
        ("zstd", skippable, twice),
        ("gzip", vec![], vec![]),
        ("gzip", gzip(b""), vec![]),
    ] {
        assert_eq!(fetch(coding, &body).await.unwrap().body, expected, "{coding}");
    }
}

#[tokio::test]
async fn unknown_or_too_many_codings_are_left_alone() {
    for coding in ["deflate", "aws-chunked", "gzip, unknown", "gzip, gzip, gzip"] {
        let rendered = fetch(coding, b"as it is").await.unwrap();
        assert_eq!(&rendered.body[..], b"as it is", "{coding}");
        assert!(rendered.headers.contains(&("content-encoding".to_owned(), coding.to_owned())), "{coding}");
        assert_eq!(rendered.declared_bytes, Some(8), "{coding}");
    }
}

#[tokio::test]
async fn truncated_or_followed_stream_is_unreadable() {
    for (coding, body) in coded_pages() {
        let cuts = [1, body.len() / 2, body.len() - 1].map(|at| body[..at].to_vec());
        let followed = [[&body[..], b"x"].concat(), [&body[..], b"more than a header's worth"].concat()];
        let broken = [b"not coded at all".to_vec()];
        for body in cuts.into_iter().chain(followed).chain(broken) {
            let failure = fetch(coding, &body).await.unwrap_err();
            assert!(matches!(failure, RenderFailure::Unreadable(_)), "{coding} {body:x?}: {failure:?}");
        }
    }
}

#[tokio::test]
async fn corrupted_bytes_never_yield_the_page_or_a_panic() {
    for (coding, body) in coded_pages() {
        for at in 0..body.len() {
            let mut corrupted = body.clone();
            corrupted[at] ^= 0x55;
            // Without a checksum another page may be what the bytes now say.
            match fetch(coding, &corrupted).await {
                Ok(rendered) => assert!(rendered.body.len() <= 1 << 20),
                Err(failure) => assert!(!chain(&failure).contains("stopped"), "{coding} {at}: {}", chain(&failure)),
            }
        }
    }
}

#[tokio::test]
async fn bomb_stops_at_the_ratio() {
    let zeros = vec![0; 512 * 1024];
    for (coding, bomb) in [("gzip", gzip(&zeros)), ("br", hex(BROTLI_ZEROS)), ("zstd", zstd(&zeros))] {
        let failure = fetch(coding, &bomb).await.unwrap_err();
        assert!(matches!(failure, RenderFailure::Unreadable(_)), "{coding}: {failure:?}");
        assert!(chain(&failure).contains("200 times"), "{coding}: {}", chain(&failure));
    }
    let doubled = fetch("zstd, gzip", &gzip(&zstd(&vec![0; 64 << 20]))).await.unwrap_err();
    assert!(matches!(doubled, RenderFailure::Unreadable(_)), "{doubled:?}");
}

#[tokio::test]
async fn decoded_body_is_at_most_the_limit() {
    let length = plain().len() as u64;
    for (coding, body) in coded_pages() {
        let server = Server::says(response(coding, &body)).await;
        let (origins, url) = (origins().with_decoding(), origin(&server.url()));
        let fetch = |max_bytes| origins.fetch(&url, OriginRequest { max_bytes, ..page() });
        assert_eq!(fetch(length).await.unwrap().body, plain(), "{coding}");
        let failure = fetch(length - 1).await.unwrap_err();
        assert!(matches!(failure, RenderFailure::TooLarge { max_bytes, .. } if max_bytes == length - 1), "{failure:?}");
    }
}

#[tokio::test]
async fn zstd_window_beyond_the_standard_is_unreadable() {
    let failure = fetch("zstd", &hex(ZSTD_LARGE_WINDOW)).await.unwrap_err();
    assert!(matches!(failure, RenderFailure::Unreadable(_)), "{failure:?}");
    assert!(chain(&failure).to_lowercase().contains("window"), "{}", chain(&failure));
}

#[tokio::test]
async fn passed_response_stays_coded() {
    for (coding, body) in coded_pages() {
        let server = Server::says(response(coding, &body)).await;
        let passed = pass(&server, visit()).await.unwrap();
        let coding = headers(&[("content-encoding", coding)]);
        assert_eq!(passed.headers.get("content-encoding"), coding.get("content-encoding"));
        assert_eq!(read(passed).await.unwrap(), body);
    }
}

#[tokio::test]
async fn oversize_page_keeps_its_head_and_a_bomb_is_unreadable() {
    let limit = 50_000;
    let fetch = async |status: &str, body: Vec<u8>| {
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Encoding: gzip\r\nAge: 7\r\nContent-MD5: x\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let server = Server::says([head.as_bytes(), &body].concat()).await;
        let request = OriginRequest { max_bytes: limit, ..page() };
        origins().with_decoding().fetch(&origin(&server.url()), request).await.unwrap_err()
    };
    for (status, code) in [("200 OK", 200), ("503 Service Unavailable", 503)] {
        let failure = fetch(status, gzip(&plain().repeat(45))).await;
        let RenderFailure::TooLarge { head: Some(head), .. } = failure else { panic!("{failure:?}") };
        assert_eq!(head.status, code);
        assert_eq!(head.headers, [("age".to_owned(), "7".to_owned())]);
    }
    // Both pass the limit of the size long before that of the ratio.
    let bomb = gzip(&[plain(), vec![0; 8 << 20]].concat());
    let mut cut = gzip(&plain().repeat(45));
    cut.truncate(cut.len() - 1);
    for body in [bomb, cut] {
        let failure = fetch("200 OK", body).await;
        assert!(matches!(failure, RenderFailure::Unreadable(_)), "{failure:?}");
    }
}
