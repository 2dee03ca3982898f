//! A name server of the test's own: each question for a name's addresses gets the next of its answers, then the last.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

type Answers = HashMap<String, Vec<Vec<Ipv4Addr>>>;

/// The handle of a name server.
pub struct Names {
    pub address: SocketAddr,
    answers: Arc<Mutex<Answers>>,
    asked: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Names {
    pub async fn listen() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let (answers, asked) = (Arc::default(), Arc::default());
        let task = tokio::spawn(serve(socket, Arc::clone(&answers), Arc::clone(&asked)));
        Self { address, answers, asked, task }
    }

    /// Gives a name its addresses: of the first question, of the second, and so on.
    pub fn set(&self, name: &str, answers: &[&[&str]]) {
        let parsed = |list: &&[&str]| list.iter().map(|one| one.parse().unwrap()).collect();
        self.answers.lock().unwrap().insert(name.to_owned(), answers.iter().map(parsed).collect());
    }

    /// The names that were asked for, of either version of addresses.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(socket: UdpSocket, answers: Arc<Mutex<Answers>>, asked: Arc<Mutex<Vec<String>>>) {
    let mut query = [0; 1500];
    while let Ok((length, peer)) = socket.recv_from(&mut query).await {
        // One question: its name, type and class; what follows it (EDNS) is not copied to the answer.
        let question = &query[12..length];
        let end = question.iter().position(|byte| *byte == 0).unwrap() + 5;
        let name = name(question);
        asked.lock().unwrap().push(name.clone());
        let is_a = question[end - 4..end] == [0, 1, 0, 1];
        let known = answers.lock().unwrap().contains_key(&name);
        let addresses = if is_a { next(&answers, &name) } else { Vec::new() };
        let count = u16::try_from(addresses.len()).unwrap().to_be_bytes();
        let head = [0x85, if known { 0 } else { 3 }, 0, 1, count[0], count[1], 0, 0, 0, 0];
        let mut answer = [&query[..2], &head, &question[..end]].concat();
        for address in addresses {
            // No time to live: every connection asks again.
            answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4]);
            answer.extend(address.octets());
        }
        drop(socket.send_to(&answer, peer).await);
    }
}

fn next(answers: &Mutex<Answers>, name: &str) -> Vec<Ipv4Addr> {
    let mut answers = answers.lock().unwrap();
    match answers.get_mut(name) {
        Some(lists) if lists.len() > 1 => lists.remove(0),
        Some(lists) => lists.first().cloned().unwrap_or_default(),
        None => Vec::new(),
    }
}

fn name(question: &[u8]) -> String {
    let (mut labels, mut at) = (Vec::new(), 0);
    while question[at] > 0 {
        let end = at + 1 + usize::from(question[at]);
        labels.push(String::from_utf8_lossy(&question[at + 1..end]).to_lowercase());
        at = end;
    }
    labels.join(".")
}
