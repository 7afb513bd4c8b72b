//! A port that leads to one of several servers, as a load balancer does: new connections go to the one that is named last, and
//! those that are open stay where they are.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// A port of loopback. It closes when this is dropped.
#[derive(Debug)]
pub struct Door {
    port: u16,
    leads_to: Arc<AtomicU16>,
    accepting: JoinHandle<()>,
}

impl Door {
    /// A port that the kernel chooses, which leads to this one.
    pub async fn open(leads_to: u16) -> io::Result<Door> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let leads_to = Arc::new(AtomicU16::new(leads_to));
        let accepting = tokio::spawn(accept(listener, leads_to.clone()));
        Ok(Door { port, leads_to, accepting })
    }

    /// Where it is.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// New connections go there.
    pub fn lead_to(&self, port: u16) {
        self.leads_to.store(port, Ordering::SeqCst);
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, leads_to: Arc<AtomicU16>) {
    // A listener on loopback fails only without free file descriptors; then nothing here works.
    while let Ok((mut from, _)) = listener.accept().await {
        let to = SocketAddr::from((Ipv4Addr::LOCALHOST, leads_to.load(Ordering::SeqCst)));
        tokio::spawn(async move {
            // Whoever cannot be reached is a connection that closes.
            if let Ok(mut to) = TcpStream::connect(to).await {
                let _ = copy_bidirectional(&mut from, &mut to).await;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// Sends its number to each client and echoes its input.
    async fn server(number: u8) -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((mut it, _)) = listener.accept().await {
                tokio::spawn(async move {
                    it.write_u8(number).await.unwrap();
                    while let Ok(said) = it.read_u8().await {
                        it.write_u8(said).await.unwrap();
                    }
                });
            }
        });
        port
    }

    #[tokio::test]
    async fn new_connections_go_elsewhere_and_open_ones_stay() {
        let (one, two) = (server(1).await, server(2).await);
        let door = Door::open(one).await.unwrap();
        let dial = || TcpStream::connect((Ipv4Addr::LOCALHOST, door.port()));
        let mut early = dial().await.unwrap();
        assert_eq!(early.read_u8().await.unwrap(), 1);
        door.lead_to(two);
        assert_eq!(dial().await.unwrap().read_u8().await.unwrap(), 2);
        early.write_u8(9).await.unwrap();
        assert_eq!(early.read_u8().await.unwrap(), 9);
    }
}
