//! Reports the clients that reject new serving certificates: once for each CA, not for each Service.

use std::sync::PoisonError;

use perennial_core::catalog::Component;
use perennial_core::plan::{Risk, Step};
use perennial_x509::Certificate;
use tracing::warn;

use super::Serving;
use crate::events::{self, NewEvent};

/// The reason of the Event.
const REASON: &str = "ServingCertificatesAtRisk";

impl Serving<'_> {
    /// Logs the risks of the first serving certificate that a CA issues with risks, and posts them as an Event on the operator.
    ///
    /// The clients are the same for every Service. The condition `PreviousServiceCAInUse` names them while there are any.
    pub(super) async fn report_risks(&self, step: &Step, signer: &Certificate) {
        let Some(text) = text(step) else { return };
        {
            let mut reported = self.risked.lock().unwrap_or_else(PoisonError::into_inner);
            if reported.replace(signer.clone()).as_ref() == Some(signer) {
                return;
            }
        }
        warn!(object = step.object, reason = REASON, "{text}");
        if let Some(involved) = events::operator(Component::ServiceCa) {
            let event = NewEvent { involved, is_warning: true, reason: REASON, text: &text, now: (self.clock)() };
            events::post(&self.client, event).await;
        }
    }
}

/// Returns the message; none if nothing is at risk.
fn text(step: &Step) -> Option<String> {
    let risks: Vec<String> = step.risks.iter().map(Risk::to_string).collect();
    (!risks.is_empty()).then(|| {
        format!(
            "Some clients reject new certificates of the service CA. The first such certificate is in Secret {}: {}. \
             `perennial consumers service-ca` lists the pods to restart",
            step.object,
            risks.join("; ")
        )
    })
}
