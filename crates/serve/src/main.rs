//! The serving Lambda function: builds the server once per sandbox, then answers every request.

use std::process::ExitCode;
use std::sync::Arc;

use everfresh_core::clients::{ClientTimeouts, Clients, Network, aws_sdk_config};
use everfresh_core::logs;
use everfresh_serve::lambda::after_reply::{AfterReply, PendingEnqueues};
use everfresh_serve::lambda::event::HttpEvent;
use everfresh_serve::{Settings, startup};
use lambda_runtime::{Error, LambdaEvent, Runtime, service_fn};

// One request at a time: more threads would only cost memory and wake-ups.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    logs::init(logs::Format::detect(), "info");
    logs::exit_code("the serving function", run().await)
}

async fn run() -> Result<(), Error> {
    let settings = Settings::from_env()?;
    let clients = Clients::aws(&aws_sdk_config(ClientTimeouts::READER, Network::Lambda).await);
    let server = Arc::new(startup::server(settings, &clients).await?);
    server.warm_up().await;
    let pending = PendingEnqueues::default();
    let (handler, after_reply) = (server.clone(), pending.clone());
    let handle = service_fn(move |event: LambdaEvent<HttpEvent>| {
        let (server, pending) = (handler.clone(), after_reply.clone());
        async move {
            let served = server.serve(&event.payload.into()).await;
            let (response, enqueues) = server.function_response(served).await;
            pending.push(enqueues);
            Ok::<_, Error>(response)
        }
    });
    Runtime::new(handle).layer(AfterReply { server, pending }).run().await
}
