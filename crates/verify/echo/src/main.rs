//! The smallest function there is: it answers its payload. What others cost is told as a multiple of it.
//!
//! A crate of its own, so that a release build of it compiles nothing that a function does not need.

use lambda_runtime::{Error, LambdaEvent, service_fn};
use serde_json::Value;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    lambda_runtime::run(service_fn(echo)).await
}

async fn echo(event: LambdaEvent<Value>) -> Result<Value, Error> {
    Ok(event.payload)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[tokio::test]
    async fn the_payload_is_the_answer() {
        for payload in [json!(null), json!({"rawPath": "/", "headers": {"host": "shop.example"}})] {
            let event = LambdaEvent::new(payload.clone(), Default::default());
            assert_eq!(echo(event).await.unwrap(), payload);
        }
    }
}
