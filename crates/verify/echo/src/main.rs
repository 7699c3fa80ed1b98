//! The smallest Lambda function: it returns its payload. Benchmarks are relative to it.
//!
//! A separate crate, so that its release build compiles nothing that it does not need.

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
    async fn response_is_the_payload() {
        for payload in [json!(null), json!({"rawPath": "/", "headers": {"host": "shop.example"}})] {
            let event = LambdaEvent::new(payload.clone(), Default::default());
            assert_eq!(echo(event).await.unwrap(), payload);
        }
    }
}
