//! The targets of notifications, from the environment.

use aws_types::region::Region;

use crate::environment::{SettingsError, Variables};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NotifierSettings {
    /// `EVERFRESH_CDN_DISTRIBUTION`: the CloudFront distribution in which pages are invalidated;
    /// empty for none.
    pub distribution: Option<String>,
    /// `EVERFRESH_CDN_INVALIDATE`: whether the distribution is notified of every published version
    /// (`all`), or only if a page is taken down, purged or rolled back (`withdrawals`).
    pub invalidate: Invalidate,
    /// Whether responses carry cache tags: true if `EVERFRESH_TAG_HEADER` is set, which the serving
    /// function must have too. Otherwise pages are invalidated by path, as Everfresh spells it, and
    /// tags not at all.
    pub by_tag: bool,
    /// `EVERFRESH_EVENT_TARGET`: the ARN of an EventBridge bus or of an SNS topic; empty for none.
    pub event_target: Option<EventTarget>,
}

/// Of which versions the CDN is notified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Invalidate {
    #[default]
    All,
    Withdrawals,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventTarget {
    /// The ARN of an EventBridge bus.
    Bus(String),
    /// The ARN of an SNS topic, standard or FIFO.
    Topic(String),
}

impl NotifierSettings {
    pub fn read<Get: Fn(&str) -> Option<String>>(variables: &Variables<Get>) -> Result<Self, SettingsError> {
        let target = variables.set("EVERFRESH_EVENT_TARGET");
        let event_target = target.map(|arn| EventTarget::parse(&arn).ok_or_else(not_a_target)).transpose()?;
        Ok(Self {
            distribution: variables.set("EVERFRESH_CDN_DISTRIBUTION"),
            invalidate: match variables.set("EVERFRESH_CDN_INVALIDATE").as_deref() {
                None | Some("all") => Invalidate::All,
                Some("withdrawals") => Invalidate::Withdrawals,
                Some(_) => {
                    let why = "must be all or withdrawals".to_owned();
                    return Err(SettingsError::Invalid { variable: "EVERFRESH_CDN_INVALIDATE", why });
                }
            },
            by_tag: variables.set("EVERFRESH_TAG_HEADER").is_some(),
            event_target,
        })
    }
}

fn not_a_target() -> SettingsError {
    let why = "must be the ARN of an EventBridge bus or of an SNS topic".to_owned();
    SettingsError::Invalid { variable: "EVERFRESH_EVENT_TARGET", why }
}

impl EventTarget {
    /// The target's region, which may differ from the worker's.
    pub(super) fn region(&self) -> Option<Region> {
        let (Self::Bus(arn) | Self::Topic(arn)) = self;
        arn.split(':').nth(3).filter(|region| !region.is_empty()).map(|region| Region::new(region.to_owned()))
    }

    pub fn parse(arn: &str) -> Option<Self> {
        let parts: Vec<&str> = arn.splitn(6, ':').collect();
        match parts.as_slice() {
            ["arn", _, "events", _, _, name] if name.starts_with("event-bus/") => Some(Self::Bus(arn.to_owned())),
            ["arn", _, "sns", _, _, name] if !name.is_empty() => Some(Self::Topic(arn.to_owned())),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(changed: &[(&str, &str)]) -> Result<NotifierSettings, SettingsError> {
        let get = |name: &str| changed.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        NotifierSettings::read(&Variables::new(get))
    }

    #[test]
    fn nothing_is_notified_unless_configured() {
        assert_eq!(read(&[]).unwrap(), NotifierSettings::default());
        assert_eq!(read(&[("EVERFRESH_EVENT_TARGET", "")]).unwrap(), NotifierSettings::default());
    }

    #[test]
    fn arn_distinguishes_bus_from_topic() {
        let bus = "arn:aws:events:eu-west-1:111122223333:event-bus/site";
        let topic = "arn:aws:sns:eu-west-1:111122223333:site.fifo";
        assert_eq!(EventTarget::parse(bus), Some(EventTarget::Bus(bus.to_owned())));
        assert_eq!(EventTarget::Bus(bus.to_owned()).region(), Some(Region::new("eu-west-1")));
        assert_eq!(EventTarget::parse(topic), Some(EventTarget::Topic(topic.to_owned())));
        for wrong in
            ["site", "arn:aws:events:eu-west-1:111122223333:rule/site", "arn:aws:sqs:eu-west-1:111122223333:site"]
        {
            let refusal = read(&[("EVERFRESH_EVENT_TARGET", wrong)]).unwrap_err().to_string();
            assert!(refusal.starts_with("EVERFRESH_EVENT_TARGET: must be the ARN"), "{refusal}");
        }
    }
}
