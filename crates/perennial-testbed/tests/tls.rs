//! A handshake succeeds with the right certificates, and the right side rejects wrong ones.

mod support;

use perennial_testbed::tls::{Identity, Pair, Setup, TlsError};
use support::{AT, Key, LEAF_EXPIRED, Workshop};

fn identity(it: &Workshop, name: &str) -> Identity {
    Identity { chain: it.text(&format!("{name}.pem")) + &it.text("middle.pem"), key: it.text(&format!("{name}.key")) }
}

fn setup(it: &Workshop) -> Setup {
    Setup {
        server: identity(it, "server"),
        server_anchors: it.text("root.pem"),
        name: "web.example.test".into(),
        client: Some((identity(it, "client"), it.text("root.pem"))),
        at: AT.unsigned_abs(),
    }
}

#[test]
fn both_sides_of_a_mutual_handshake_are_verified() {
    for key in [Key::Rsa, Key::Ec] {
        let it = Workshop::with_chain(key);
        let good = setup(&it);
        let pair = Pair::new(&good).unwrap();
        pair.handshake().unwrap();
        pair.handshakes_on_loopback(3).unwrap();
        pair.handshake().unwrap();
        Pair::new(&Setup { client: None, name: "192.0.2.7".into(), ..good.clone() }).unwrap().handshake().unwrap();

        let wrong_client = (identity(&it, "server"), it.text("root.pem"));
        let refused = |setup: Setup| Pair::new(&setup).unwrap().handshake().unwrap_err();
        let other_name = refused(Setup { name: "other.test".into(), ..good.clone() });
        assert!(matches!(other_name, TlsError::Client(_)), "{other_name:?}");
        let late = refused(Setup { at: LEAF_EXPIRED.unsigned_abs(), ..good.clone() });
        assert!(matches!(late, TlsError::Client(_)), "{late:?}");
        let server_as_client = refused(Setup { client: Some(wrong_client), ..good });
        assert!(matches!(server_as_client, TlsError::Server(_)), "{server_as_client:?}");
    }
}

#[test]
fn a_private_key_is_not_printed() {
    let it = Workshop::with_chain(Key::Ec);
    let printed = format!("{:?}", setup(&it));
    assert!(printed.contains("BEGIN CERTIFICATE") && !printed.contains("PRIVATE KEY"), "{printed}");
}
