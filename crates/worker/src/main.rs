//! The worker's Lambda function.

use aws_lambda_events::event::sqs::SqsEvent;
use everfresh_core::logs;
use lambda_runtime::{Error, LambdaEvent, service_fn};

#[tokio::main]
async fn main() -> Result<(), Error> {
    logs::init(logs::Format::detect(), "info");
    let handle = |event: LambdaEvent<SqsEvent>| async { Ok::<_, Error>(everfresh_worker::handle(event.payload).await) };
    lambda_runtime::run(service_fn(handle)).await
}
