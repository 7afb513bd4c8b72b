//! The clients. Go, Java and Python run one process for all questions; OpenSSL and GnuTLS run their own command lines, one
//! process for each question.

use std::{
    fmt::Write as _,
    io::{self, Read, Write as _},
    net::{Ipv4Addr, TcpStream},
    path::PathBuf,
    process::{Command, Stdio},
    sync::Arc,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use rustls::{CertificateError, ClientConfig, ClientConnection, Stream, crypto::aws_lc_rs};
use rustls_pki_types::ServerName;
use tempfile::NamedTempFile;

use super::{Answer, AskError, Call, Client, GREETING, Reason, servers::TIMEOUT};
use crate::{
    ToolError,
    judges::in_parallel,
    tls::{self, TlsError},
    tools::{self, built_once},
};

/// Returns the answers of this client to all servers, in their order.
pub(super) fn dial(client: Client, calls: &[Call<'_>]) -> Result<Vec<Answer>, AskError> {
    match client {
        Client::OpenSsl => in_parallel(calls, openssl).into_iter().collect(),
        Client::Go => program(client, Command::new(go_program()?).args(["dial", GREETING]), calls),
        Client::Java => program(client, java()?.arg(GREETING), calls),
        Client::GnuTls => in_parallel(calls, gnutls).into_iter().collect(),
        Client::Python => program(client, python("3.12").arg(GREETING), calls),
        Client::Python313 => program(client, python("3.13").arg(GREETING), calls),
        Client::Rustls => calls.iter().map(rustls).collect(),
    }
}

pub(super) fn go_program() -> Result<PathBuf, ToolError> {
    let sources = [
        ("go.mod", include_str!("../../handshakes/go/go.mod")),
        ("main.go", include_str!("../../handshakes/go/main.go")),
    ];
    Ok(tools::built_with_go("handshakes", &sources)?.join("handshakes"))
}

fn java() -> Result<Command, ToolError> {
    let sources = [("Dial.java", include_str!("../../handshakes/java/Dial.java"))];
    let built = built_once("javac", &sources, |javac| {
        javac.args(["-d", ".", "Dial.java"]);
    })?;
    let mut java = Command::new("java");
    java.args(tools::JAVA_STARTS_FAST).arg("-cp").arg(built).arg("Dial");
    Ok(java)
}

fn python(defaults: &str) -> Command {
    let mut python = Command::new("python3");
    python.args(["-c", include_str!("../../handshakes/python/dial.py"), defaults]);
    python
}

/// Runs a helper program around a foreign library; `handshakes/go/main.go` describes the protocol.
fn program(client: Client, command: &mut Command, calls: &[Call<'_>]) -> Result<Vec<Answer>, AskError> {
    let mut input = String::new();
    for Call { question, port } in calls {
        let name = &question.name;
        assert!(!name.contains(['\t', '\n']), "the name of {} breaks the line format", question.id);
        writeln!(input, "{port}\t{name}\t{}", STANDARD.encode(&question.bundle)).expect("writing to a string works");
    }
    let said = tools::ask(command, input.as_bytes())?;
    let lines: Vec<&str> = said.lines().collect();
    if lines.len() != calls.len() {
        let wanted = format!("{} answers", calls.len());
        return Err(ToolError::garbled(&format!("the client of {client}"), wanted, said.as_str()).into());
    }
    let answer = |(call, line): (&Call<'_>, &str)| match line.split('\t').collect::<Vec<_>>()[..] {
        ["accepted"] => Ok(Answer::Accepted),
        ["refused", reason, why] => Ok(refused(read_reason(reason), why)),
        _ => Err(broken(client, call, line)),
    };
    calls.iter().zip(lines).map(answer).collect()
}

pub(super) fn read_reason(word: &str) -> Reason {
    match word {
        "issuer" => Reason::Issuer,
        "time" => Reason::Time,
        "name" => Reason::Name,
        _ => Reason::Other,
    }
}

fn openssl(call: &Call<'_>) -> Result<Answer, AskError> {
    let bundle = file(&call.question.bundle)?;
    let name = call.question.name.as_str();
    let mut command = Command::new("openssl");
    command.args(["s_client", "-brief", "-ign_eof", "-connect", &address(call), "-servername", name]);
    command.args(["-verify_return_error", "-verify_hostname", name]);
    // Only the bundle counts, not the trust store of the machine.
    command.args(["-no-CApath", "-no-CAstore", "-CAfile"]).arg(bundle.path());
    let output = tools::run(within_patience(&command).stdin(Stdio::null()))?;
    let [said, errors] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    // Such as "verify error:num=62:hostname mismatch".
    let refusal = errors.lines().find_map(|line| line.strip_prefix("verify error:num=")?.split_once(':'));
    match refusal {
        None if output.status.success() && said.trim() == GREETING => Ok(Answer::Accepted),
        Some((number, why)) if !output.status.success() => Ok(refused(openssl_reason(number), why)),
        _ => Err(broken(Client::OpenSsl, call, &format!("{said} {errors}"))),
    }
}

/// By the numbers of X509_V_ERR_*, as in `handshakes/python/dial.py`.
fn openssl_reason(number: &str) -> Reason {
    match number {
        "2" | "6" | "7" | "18" | "19" | "20" | "21" | "29" | "30" | "31" => Reason::Issuer,
        "9" | "10" | "13" | "14" => Reason::Time,
        "62" | "63" | "64" => Reason::Name,
        _ => Reason::Other,
    }
}

fn gnutls(call: &Call<'_>) -> Result<Answer, AskError> {
    let bundle = file(&call.question.bundle)?;
    let name = &call.question.name;
    let mut command = Command::new("gnutls-cli");
    command.arg(format!("--x509cafile={}", bundle.path().display()));
    command.args([format!("--verify-hostname={name}"), format!("--sni-hostname={name}")]);
    command.args([format!("--port={}", call.port), Ipv4Addr::LOCALHOST.to_string()]);
    let output = tools::run(within_patience(&command).stdin(Stdio::null()))?;
    let [said, errors] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    let refusal = said.lines().find_map(|line| line.strip_prefix("- Status: The certificate is NOT trusted. "));
    match refusal {
        None if output.status.success() && said.lines().any(|line| line == GREETING) => Ok(Answer::Accepted),
        Some(why) if !output.status.success() => Ok(refused(gnutls_reason(why), why)),
        _ => Err(broken(Client::GnuTls, call, &format!("{said} {errors}"))),
    }
}

/// GnuTLS names all faults that it found.
fn gnutls_reason(why: &str) -> Reason {
    const WORDS: [(&str, Reason); 4] = [
        ("issuer is unknown", Reason::Issuer),
        ("expired", Reason::Time),
        ("not yet", Reason::Time),
        ("name in the certificate does not match", Reason::Name),
    ];
    WORDS.iter().find(|(words, _)| why.contains(words)).map_or(Reason::Other, |(_, reason)| *reason)
}

fn rustls(call: &Call<'_>) -> Result<Answer, AskError> {
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Setup)?
        .with_root_certificates(tls::roots(&call.question.bundle)?)
        .with_no_client_auth();
    let name = ServerName::try_from(call.question.name.clone()).map_err(TlsError::Name)?;
    let mut client = ClientConnection::new(Arc::new(config), name).map_err(TlsError::Setup)?;
    let mut talk = || -> io::Result<String> {
        let mut socket = TcpStream::connect((Ipv4Addr::LOCALHOST, call.port))?;
        socket.set_read_timeout(Some(TIMEOUT))?;
        let mut said = String::new();
        let mut stream = Stream::new(&mut client, &mut socket);
        stream.flush()?;
        stream.read_to_string(&mut said)?;
        Ok(said)
    };
    match talk() {
        Ok(said) if said.trim() == GREETING => Ok(Answer::Accepted),
        Ok(said) => Err(broken(Client::Rustls, call, &said)),
        Err(error) => match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            Some(rustls::Error::InvalidCertificate(why)) => Ok(refused(rustls_reason(why), &format!("{why:?}"))),
            _ => Err(broken(Client::Rustls, call, &tools::error_chain(&error))),
        },
    }
}

fn rustls_reason(why: &CertificateError) -> Reason {
    match why {
        // The last one means that the only issuer of that name has another kind of key.
        CertificateError::UnknownIssuer
        | CertificateError::BadSignature
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => Reason::Issuer,
        CertificateError::Expired
        | CertificateError::ExpiredContext { .. }
        | CertificateError::NotValidYet
        | CertificateError::NotValidYetContext { .. } => Reason::Time,
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => Reason::Name,
        _ => Reason::Other,
    }
}

pub(super) fn refused(reason: Reason, why: &str) -> Answer {
    Answer::Refused { reason, why: why.split_whitespace().collect::<Vec<_>>().join(" ") }
}

fn broken(client: Client, call: &Call<'_>, said: &str) -> AskError {
    AskError::Broken { client, id: call.question.id.clone(), said: said.trim().to_owned() }
}

fn address(call: &Call<'_>) -> String {
    format!("{}:{}", Ipv4Addr::LOCALHOST, call.port)
}

/// Ends a command line that hangs.
fn within_patience(command: &Command) -> Command {
    let mut timed = Command::new("timeout");
    timed.arg(TIMEOUT.as_secs().to_string()).arg(command.get_program()).args(command.get_args());
    timed
}

/// A bundle for clients that read files.
fn file(bundle: &str) -> Result<NamedTempFile, ToolError> {
    let write = || -> io::Result<NamedTempFile> {
        let mut file = NamedTempFile::new()?;
        file.write_all(bundle.as_bytes())?;
        Ok(file)
    };
    write().map_err(ToolError::file(&std::env::temp_dir()))
}

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, thread};

    use super::*;
    use crate::{handshakes::Question, tls::Identity};

    /// Returns the answers of all clients for this port, with a readable bundle.
    fn each(port: u16, said: impl Fn(Client, AskError)) {
        let mut openssl = Command::new("openssl");
        openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]);
        let bundle = tools::ask(openssl.args(["-keyout", "/dev/null", "-subj", "/CN=nobody"]), b"").unwrap();
        let server = Identity { chain: String::new(), key: String::new() };
        let question = Question { id: "it".into(), server, bundle, name: "web.example.test".into() };
        for client in Client::ALL {
            let answer = dial(client, &[Call { question: &question, port }]);
            said(client, answer.expect_err("no server presented a certificate"));
        }
    }

    #[test]
    fn without_a_server_certificate_no_client_reports_a_rejection() {
        let is_broken = |client, error| assert!(matches!(error, AskError::Broken { .. }), "{client}: {error}");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        // A server that does not speak TLS, once for each client.
        let rude = thread::spawn(move || {
            for _ in Client::ALL {
                let (mut socket, _) = listener.accept().unwrap();
                socket.write_all(b"go away\n").unwrap();
            }
        });
        each(port, is_broken);
        rude.join().unwrap();
        // No server: the listener is closed.
        each(port, is_broken);
    }
}
