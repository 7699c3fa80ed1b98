//! The smallest function there is: it answers its payload. What others cost is told as a multiple of it.

use lambda_runtime::{Error, LambdaEvent, service_fn};
use serde_json::Value;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    lambda_runtime::run(service_fn(|event: LambdaEvent<Value>| async { Ok::<_, Error>(event.payload) })).await
}
