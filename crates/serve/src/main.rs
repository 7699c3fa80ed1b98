//! The serving Lambda function: builds the server once per sandbox, then answers every reader.

use std::process::ExitCode;
use std::sync::Arc;

use everfresh_core::clients::{ClientTimeouts, Clients, Network, aws_sdk_config};
use everfresh_core::logs;
use everfresh_serve::after_reply::{AfterReply, Rest};
use everfresh_serve::event::{HttpAnswer, HttpEvent};
use everfresh_serve::{Settings, build};
use lambda_runtime::{Error, LambdaEvent, Runtime, service_fn};

// One request at a time: more threads would only cost memory and wake-ups.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    logs::init(logs::Format::detect(), "info");
    logs::ended("the serving function", run().await)
}

async fn run() -> Result<(), Error> {
    let settings = Settings::from_env()?;
    let clients = Clients::aws(&aws_sdk_config(ClientTimeouts::READER, Network::Lambda).await);
    let server = Arc::new(build::server(settings, &clients).await?);
    server.warm_up().await;
    let rest = Rest::default();
    let (handler, leaves) = (server.clone(), rest.clone());
    let handle = service_fn(move |event: LambdaEvent<HttpEvent>| {
        let (server, rest) = (handler.clone(), leaves.clone());
        async move {
            let served = server.serve(&event.payload.into()).await;
            rest.leave(served.wish);
            Ok::<_, Error>(HttpAnswer::from(served.reply))
        }
    });
    Runtime::new(handle).layer(AfterReply { server, rest }).run().await
}
