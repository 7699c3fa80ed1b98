//! An origin whose answers a test holds back.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

/// Each render is numbered in its page, and waits while the gate is shut.
pub(crate) struct Origin {
    pub(crate) url: String,
    gate: Arc<(Mutex<bool>, Condvar)>,
    renders: Arc<AtomicUsize>,
}

impl Origin {
    /// With the gate shut.
    pub(crate) fn shut() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (gate, renders) = (Arc::new((Mutex::new(false), Condvar::new())), Arc::new(AtomicUsize::new(0)));
        let (shared, count) = (gate.clone(), renders.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (gate, count) = (shared.clone(), count.clone());
                std::thread::spawn(move || answer(stream.unwrap(), &gate, &count));
            }
        });
        Self { url, gate, renders }
    }

    /// Every render that waits is answered, and every later one.
    pub(crate) fn open(&self) {
        *self.gate.0.lock().unwrap() = true;
        self.gate.1.notify_all();
    }

    /// Renders that have begun.
    pub(crate) fn renders(&self) -> usize {
        self.renders.load(Ordering::SeqCst)
    }
}

fn answer(mut stream: TcpStream, gate: &(Mutex<bool>, Condvar), renders: &AtomicUsize) {
    let (mut request, mut byte) = (Vec::new(), [0]);
    while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read > 0) {
        request.extend(byte);
    }
    let number = renders.fetch_add(1, Ordering::SeqCst) + 1;
    drop(gate.1.wait_while(gate.0.lock().unwrap(), |open| !*open).unwrap());
    let page = format!("<!doctype html><title>render {number}</title></html>");
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\nconnection: close";
    // The worker may have given up.
    let _ = write!(stream, "{head}\r\ncontent-length: {}\r\n\r\n{page}", page.len());
}
