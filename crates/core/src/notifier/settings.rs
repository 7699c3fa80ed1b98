//! Who is to be told, as the environment says.

use aws_types::region::Region;

use crate::environment::{SettingsError, Variables};

/// Who is to be told of what was published.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NotifierSettings {
    /// `EVERFRESH_CDN_DISTRIBUTION`: the CloudFront distribution that forgets its copies of a page; empty for none.
    pub distribution: Option<String>,
    /// Whether pages carry tags there: so it is if `EVERFRESH_TAG_HEADER` is set, which the serving function must have too. Else copies are
    /// forgotten by path, as Everfresh spells it, and those of a tag not at all.
    pub by_tag: bool,
    /// `EVERFRESH_EVENT_TARGET`: the ARN of an EventBridge bus or of an SNS topic; empty for none.
    pub event_target: Option<EventTarget>,
}

/// Where events go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventTarget {
    /// The ARN of an EventBridge bus.
    Bus(String),
    /// The ARN of an SNS topic, standard or FIFO.
    Topic(String),
}

impl NotifierSettings {
    /// Reads and checks the three variables.
    pub fn read<Get: Fn(&str) -> Option<String>>(variables: &Variables<Get>) -> Result<Self, SettingsError> {
        let target = variables.set("EVERFRESH_EVENT_TARGET");
        let event_target = target.map(|arn| EventTarget::parse(&arn).ok_or_else(not_a_target)).transpose()?;
        Ok(Self {
            distribution: variables.set("EVERFRESH_CDN_DISTRIBUTION"),
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
    /// Where it is, which need not be where we are.
    pub(super) fn region(&self) -> Option<Region> {
        let (Self::Bus(arn) | Self::Topic(arn)) = self;
        arn.split(':').nth(3).filter(|region| !region.is_empty()).map(|region| Region::new(region.to_owned()))
    }

    /// The target with that ARN.
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
    fn nobody_is_told_unless_so_configured() {
        assert_eq!(read(&[]).unwrap(), NotifierSettings::default());
        assert_eq!(read(&[("EVERFRESH_EVENT_TARGET", "")]).unwrap(), NotifierSettings::default());
    }

    #[test]
    fn a_bus_and_a_topic_are_told_apart_by_their_arn() {
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
