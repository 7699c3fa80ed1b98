//! Trace context of the producer, which links a regeneration to the operation that caused it.

use crate::attributes;

/// W3C and X-Ray trace context of a message. Always well formed; empty by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceContext {
    traceparent: Option<String>,
    tracestate: Option<String>,
    xray: Option<String>,
}

/// Why a text is not a valid trace context. A request does not need one: send it without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// `traceparent` is not `version-trace-parent-flags` in lower-case hex, or an id is all zeros.
    #[error("traceparent is not <version>-<trace id>-<parent id>-<flags> in lower-case hex")]
    Traceparent,
    /// `tracestate` is not a list of `key=value`, or is too long.
    #[error("tracestate is not a list of at most 32 key=value within 512 printable characters")]
    Tracestate,
    /// The X-Ray header has no `Root=1-…-…`, or has unknown fields.
    #[error("the X-Ray header is not Root=1-<8 hex>-<24 hex>, with Parent, Sampled, Self or Lineage")]
    Xray,
}

impl TraceContext {
    /// Reads the HTTP headers `traceparent`, `tracestate` and `x-amzn-trace-id`. Malformed values
    /// are dropped, as the W3C specification requires.
    pub fn from_headers<'h>(header: impl Fn(&str) -> Option<&'h str>) -> Self {
        let traceparent = header("traceparent").filter(|text| is_traceparent(text));
        // tracestate is meaningless without traceparent.
        let tracestate = header("tracestate").filter(|text| traceparent.is_some() && is_tracestate(text));
        let xray = header("x-amzn-trace-id").filter(|text| is_xray(text));
        Self {
            traceparent: traceparent.map(str::to_owned),
            tracestate: tracestate.map(str::to_owned),
            xray: xray.map(str::to_owned),
        }
    }

    /// Sets the W3C trace context, validated.
    pub fn w3c(mut self, traceparent: &str, tracestate: Option<&str>) -> Result<Self, TraceError> {
        if !is_traceparent(traceparent) {
            return Err(TraceError::Traceparent);
        }
        if !tracestate.is_none_or(is_tracestate) {
            return Err(TraceError::Tracestate);
        }
        self.traceparent = Some(traceparent.to_owned());
        self.tracestate = tracestate.map(str::to_owned);
        Ok(self)
    }

    /// Sets the X-Ray trace header, validated: the HTTP header `X-Amzn-Trace-Id` or a Lambda
    /// function's `_X_AMZN_TRACE_ID`.
    pub fn xray(mut self, header: &str) -> Result<Self, TraceError> {
        if !is_xray(header) {
            return Err(TraceError::Xray);
        }
        self.xray = Some(header.to_owned());
        Ok(self)
    }

    pub(crate) fn attributes(&self) -> impl Iterator<Item = (&str, &str)> {
        let parent = self.traceparent.as_deref().map(|text| (attributes::TRACEPARENT, text));
        let state = self.tracestate.as_deref().map(|text| (attributes::TRACESTATE, text));
        parent.into_iter().chain(state)
    }

    pub(crate) fn xray_header(&self) -> Option<&str> {
        self.xray.as_deref()
    }
}

fn is_traceparent(text: &str) -> bool {
    let mut parts = text.split('-');
    let (Some(version), Some(trace), Some(parent), Some(flags)) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return false;
    };
    let hex = is_hex(version, 2) && is_hex(trace, 32) && is_hex(parent, 16) && is_hex(flags, 2);
    let zero = |id: &str| id.bytes().all(|digit| digit == b'0');
    // Version 00 has exactly four parts, ff is invalid, and a later version may add parts (bounded
    // here).
    let rest = if version == "00" { parts.next().is_none() } else { version != "ff" && text.len() <= 128 };
    hex && rest && !zero(trace) && !zero(parent) && is_printable(text)
}

fn is_tracestate(text: &str) -> bool {
    let members: Vec<&str> = text.split(',').map(str::trim).filter(|member| !member.is_empty()).collect();
    let well_formed =
        |member: &&str| member.split_once('=').is_some_and(|(key, value)| !key.is_empty() && !value.is_empty());
    (1..=32).contains(&members.len()) && text.len() <= 512 && is_printable(text) && members.iter().all(well_formed)
}

fn is_xray(text: &str) -> bool {
    let mut has_root = false;
    for field in text.split(';') {
        let Some((name, value)) = field.trim().split_once('=') else { return false };
        let good = match name {
            "Root" => {
                has_root = true;
                is_xray_trace(value)
            }
            "Self" => is_xray_trace(value),
            "Parent" => is_hex(value, 16),
            "Sampled" => matches!(value, "0" | "1" | "?"),
            "Lineage" => !value.is_empty(),
            _ => false,
        };
        if !good {
            return false;
        }
    }
    has_root && text.len() <= 256 && is_printable(text)
}

fn is_xray_trace(id: &str) -> bool {
    let parts: Vec<&str> = id.split('-').collect();
    matches!(parts.as_slice(), ["1", time, random] if is_hex(time, 8) && is_hex(random, 24))
}

fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn is_printable(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    const ROOT: &str = "Root=1-5759e988-bd862e3fe1be46a994272793";

    #[test]
    fn valid_contexts_are_kept_unchanged() {
        let later = format!("01{}-more", &PARENT[2..]);
        for parent in [PARENT, &later] {
            let context = TraceContext::default().w3c(parent, Some("congo=t61rcWkgMzE, rojo=00f0")).unwrap();
            let attributes: Vec<_> = context.attributes().collect();
            assert_eq!(attributes, [("traceparent", parent), ("tracestate", "congo=t61rcWkgMzE, rojo=00f0")]);
        }
        for rest in ["", ";Parent=53995c3f42cd8ad8;Sampled=1", "; Sampled=?; Lineage=a87bd80c:1|68fd508a:5"] {
            let header = format!("{ROOT}{rest}");
            assert_eq!(TraceContext::default().xray(&header).unwrap().xray_header(), Some(header.as_str()));
        }
    }

    #[test]
    fn malformed_contexts_are_refused_by_name() {
        let upper = PARENT.to_uppercase();
        let no_trace = format!("00-{}-b7ad6b7169203331-01", "0".repeat(32));
        let more = format!("{PARENT}-more");
        let ff = format!("ff{}", &PARENT[2..]);
        for parent in ["", "00", &upper, &no_trace, &more, &ff, &PARENT[1..], "00-é-b7ad6b7169203331-01"] {
            assert_eq!(TraceContext::default().w3c(parent, None), Err(TraceError::Traceparent), "{parent}");
        }
        let many = (0..33).map(|n| format!("k{n}=v")).collect::<Vec<_>>().join(",");
        let long = format!("k={}", "v".repeat(511));
        for state in ["", "novalue", "k=", "k=v\n", &many, &long] {
            assert_eq!(TraceContext::default().w3c(PARENT, Some(state)), Err(TraceError::Tracestate), "{state}");
        }
        for header in ["", "Sampled=1", "Root=1-5759e988", "Root=2-5759e988-bd862e3fe1be46a994272793", "Root"] {
            assert_eq!(TraceContext::default().xray(header), Err(TraceError::Xray), "{header}");
        }
        let foreign = format!("{ROOT};Evil=1");
        assert_eq!(TraceContext::default().xray(&foreign), Err(TraceError::Xray));
    }

    #[test]
    fn malformed_headers_are_dropped() {
        let of = |parent, state, xray| {
            TraceContext::from_headers(|name| match name {
                "traceparent" => Some(parent),
                "tracestate" => Some(state),
                "x-amzn-trace-id" => Some(xray),
                _ => None,
            })
        };
        let all = TraceContext::default().w3c(PARENT, Some("a=1")).unwrap().xray(ROOT).unwrap();
        assert_eq!(of(PARENT, "a=1", ROOT), all);
        assert_eq!(of(PARENT, "a", "x"), TraceContext::default().w3c(PARENT, None).unwrap());
        assert_eq!(of("x", "a=1", ROOT), TraceContext::default().xray(ROOT).unwrap());
        assert_eq!(TraceContext::from_headers(|_| None), TraceContext::default());
    }
}
