//! Small HTTP origins on the loopback interface; the test controls every byte.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// A server with one handler for all connections. It ends on drop.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    requests: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    /// Listens on a free port.
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
                // Some tests close the connection early: errors are expected.
                tokio::spawn(talk(Conversation { number, stream, seen: Arc::clone(&seen) }));
            }
        });
        Self { address, connections, requests, task }
    }

    /// Reads one request per connection, sends `answer` and closes the connection.
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

    /// The URL for a configuration.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// The number of accepted connections.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// The heads of all requests, in order.
    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

/// One connection on the side of the origin.
#[derive(Debug)]
pub struct Conversation {
    /// Counted from zero.
    pub number: usize,
    /// The connection itself, for other protocols.
    pub stream: TcpStream,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Conversation {
    /// The next request's head. An error if the client has closed the connection.
    pub async fn request(&mut self) -> io::Result<String> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(self.stream.read_u8().await?);
        }
        let head = String::from_utf8(head).unwrap();
        self.seen.lock().unwrap().push(head.clone());
        Ok(head)
    }

    /// Sends and flushes.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref()).await?;
        self.stream.flush().await
    }

    /// Sends nothing more, and waits until the client closes the connection.
    pub async fn fall_silent(&mut self) -> io::Result<()> {
        let mut ignored = [0; 1024];
        while self.stream.read(&mut ignored).await? > 0 {}
        Ok(())
    }
}
