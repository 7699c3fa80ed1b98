//! The function's response: in one piece, or streamed where the function URL is set up for that.

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyDataStream, BodyExt, Full};
use lambda_runtime::{Error, FunctionResponse, MetadataPrelude, StreamResponse};

use super::event::HttpAnswer;
use crate::enqueue::Enqueue;
use crate::http::Reply;
use crate::server::{Served, Server};

/// The body of a streamed response.
pub type BodyStream = BodyDataStream<UnsyncBoxBody<Bytes, Error>>;

impl Server {
    /// What the function returns, and what it enqueues after that.
    pub async fn function_response(&self, served: Served) -> (FunctionResponse<HttpAnswer, BodyStream>, Vec<Enqueue>) {
        if !self.settings.response_stream {
            let (reply, enqueues) = self.buffered(served).await;
            return (FunctionResponse::BufferedResponse(HttpAnswer::from(reply)), enqueues);
        }
        let Served { reply, stream, enqueues } = served;
        let metadata_prelude = prelude(&reply);
        let body = match stream {
            Some(stream) => stream.body.map_err(Error::from).boxed_unsync(),
            None => Full::new(reply.body).map_err(|never| match never {}).boxed_unsync(),
        };
        let stream = BodyDataStream::new(body);
        (FunctionResponse::StreamingResponse(StreamResponse { metadata_prelude, stream }), enqueues)
    }
}

/// Status and headers. A header that is not valid is left out: the reply's own always are, and the
/// origin's came out of a parser.
fn prelude(reply: &Reply) -> MetadataPrelude {
    let mut prelude = MetadataPrelude::default();
    if let Ok(status) = reply.status.try_into() {
        prelude.status_code = status;
    }
    let mut headers = HeaderMap::new();
    for (name, value) in &reply.headers {
        if name == "set-cookie" {
            prelude.cookies.push(value.clone());
        } else if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            headers.insert(name, value);
        }
    }
    prelude.headers = headers;
    prelude
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_of_a_streamed_response_are_a_list() {
        let reply = Reply::new(302).with("set-cookie", "a=1").with("set-cookie", "b=2").with("location", "/");
        let prelude = prelude(&reply);
        assert_eq!((prelude.status_code.as_u16(), prelude.cookies), (302, vec!["a=1".to_owned(), "b=2".to_owned()]));
        assert_eq!(prelude.headers.len(), 1);
    }
}
