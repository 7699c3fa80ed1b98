//! Small origins on the loopback interface that say exactly what a test tells them to.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use everfresh_core::config::Render;
use everfresh_core::domain::artifact::Rendered;
use everfresh_core::domain::page_key::{CanonicalPath, PageKey, Tenant};
use everfresh_core::render::{RenderFailure, RenderRequest, Renderer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Far longer than anything here takes.
pub const LONG: Duration = Duration::from_secs(60);

/// Short, for tests that wait it out.
pub const SHORT: Duration = Duration::from_millis(300);

/// What to ask for.
#[derive(Clone)]
pub struct Ask {
    pub path: &'static str,
    pub max_bytes: u64,
    pub time: Duration,
}

impl Default for Ask {
    fn default() -> Self {
        Self { path: "/products/42?color=red", max_bytes: 1 << 20, time: LONG }
    }
}

pub async fn ask(renderer: &dyn Renderer, render: &Render, ask: Ask) -> Result<Rendered, RenderFailure> {
    let page = PageKey::new(Tenant::parse("acme").unwrap(), CanonicalPath::stored(ask.path).unwrap());
    let (max_bytes, time) = (ask.max_bytes, ask.time);
    renderer.render(RenderRequest { page: &page, render, host: "www.acme.example", max_bytes, time }).await
}

/// The texts of an error and of everything below it.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        text = format!("{text}: {error}");
        next = error.source();
    }
    text
}

/// A server whose connections are all handled by one function. It ends with the value.
pub struct Origin {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    requests: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Origin {
    pub async fn start<F, Talk>(talk: F) -> Self
    where
        F: Fn(Conversation) -> Talk + Send + 'static,
        Talk: Future<Output = io::Result<()>> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (count, seen) = (Arc::clone(&connections), Arc::clone(&requests));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let number = count.fetch_add(1, Ordering::SeqCst);
                // A client that hangs up in the middle is what some tests are about.
                tokio::spawn(talk(Conversation { number, stream, seen: Arc::clone(&seen) }));
            }
        });
        Self { address, connections, requests, task }
    }

    /// Reads one request per connection, sends `answer` and closes.
    pub async fn says(answer: impl Into<Vec<u8>>) -> Self {
        let answer = Arc::new(answer.into());
        Self::start(move |mut talk| {
            let answer = Arc::clone(&answer);
            async move {
                talk.request().await?;
                talk.send(&*answer).await
            }
        })
        .await
    }

    pub fn render(&self) -> Render {
        Render::http(&format!("http://{}", self.address)).unwrap()
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

/// One connection, as the origin sees it.
pub struct Conversation {
    /// Counted from zero.
    pub number: usize,
    pub stream: TcpStream,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Conversation {
    /// The next request's head. An error if the client has hung up.
    pub async fn request(&mut self) -> io::Result<String> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(self.stream.read_u8().await?);
        }
        let head = String::from_utf8(head).unwrap();
        self.seen.lock().unwrap().push(head.clone());
        Ok(head)
    }

    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref()).await?;
        self.stream.flush().await
    }

    /// Says nothing more, and waits for the client to hang up.
    pub async fn fall_silent(&mut self) -> io::Result<()> {
        let mut ignored = [0; 1024];
        while self.stream.read(&mut ignored).await? > 0 {}
        Ok(())
    }
}
