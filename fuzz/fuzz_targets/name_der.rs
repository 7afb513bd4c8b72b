//! Reads a name from any bytes, and prints it on one line.
#![no_main]

use libfuzzer_sys::fuzz_target;
use perennial_x509::Name;

fuzz_target!(|der: &[u8]| {
    if let Ok(name) = Name::from_der(der) {
        assert_eq!(name.der(), der);
        let text = name.to_string();
        assert!(!text.contains(['\n', '\r', '\0']));
        assert_eq!(text.is_empty(), name.is_empty());
        let _ = (name.common_name(), name.organizations(), name.organizational_units());
    }
});
