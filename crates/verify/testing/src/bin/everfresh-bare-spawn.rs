//! A counterexample: the serving function with the enqueue in a spawned task instead of after the
//! reply. The freeze test shows that its messages are not sent.

use std::sync::Arc;

use everfresh_core::clients::{ClientTimeouts, Clients, Network, aws_sdk_config};
use everfresh_serve::lambda::event::{HttpAnswer, HttpEvent};
use everfresh_serve::{Settings, startup};
use lambda_runtime::{Error, LambdaEvent, Runtime, service_fn};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let settings = Settings::from_env()?;
    let clients = Clients::aws(&aws_sdk_config(ClientTimeouts::READER, Network::Lambda).await);
    let server = Arc::new(startup::server(settings, &clients).await?);
    let handle = service_fn(move |event: LambdaEvent<HttpEvent>| {
        let server = server.clone();
        async move {
            let served = server.serve(&event.payload.into()).await;
            let enqueues = served.enqueues;
            tokio::spawn(async move {
                for enqueue in enqueues {
                    server.enqueue(enqueue).await;
                }
            });
            Ok::<_, Error>(HttpAnswer::from(served.reply))
        }
    });
    Runtime::new(handle).run().await
}
