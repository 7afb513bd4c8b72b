//! The rustls-webpki judge: the result of a rustls server or client.

use std::time::Duration;

use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use webpki::{ALL_VERIFICATION_ALGS, EndEntityCert, Error, KeyUsage, anchor_from_trusted_cert};

use super::{Case, Purpose, Verdict};

pub(super) fn judge(case: &Case) -> Verdict {
    let Some((leaf, intermediates)) = case.chain.split_first() else {
        return Verdict::refused("the chain is empty");
    };
    match verify(case, leaf, intermediates) {
        Ok(()) => Verdict::accepted(),
        // The error for a wrong name lists the names of the certificate.
        Err(error) => Verdict::refused(format!("{error:?}")),
    }
}

fn verify(case: &Case, leaf: &[u8], intermediates: &[Vec<u8>]) -> Result<(), Error> {
    let certificates = |ders: &[Vec<u8>]| ders.iter().cloned().map(CertificateDer::from).collect::<Vec<_>>();
    let (leaf, intermediates) = (CertificateDer::from(leaf), certificates(intermediates));
    let anchors = certificates(&case.anchors);
    let anchors = anchors.iter().map(anchor_from_trusted_cert).collect::<Result<Vec<_>, _>>()?;
    let usage = match case.purpose {
        Purpose::Server => KeyUsage::server_auth(),
        Purpose::Client => KeyUsage::client_auth(),
    };
    let at = UnixTime::since_unix_epoch(Duration::from_secs(
        u64::try_from(case.at).map_err(|_| Error::InvalidCertValidity)?,
    ));

    let leaf = EndEntityCert::try_from(&leaf)?;
    leaf.verify_for_usage(ALL_VERIFICATION_ALGS, &anchors, &intermediates, at, usage, None, None)?;
    if let Some(name) = &case.name {
        let name = ServerName::try_from(name.as_str()).map_err(|_| Error::MalformedDnsIdentifier)?;
        leaf.verify_is_valid_for_subject_name(&name)?;
    }
    Ok(())
}
