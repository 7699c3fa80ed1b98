//! What DynamoDB refuses and the engine would take, refused before the engine sees it. Every client of the engine comes this way, the
//! tests' and the gateway's: nothing can be green here that AWS turns down.
//!
//! Each rule is listed, with an example, in `tests/validation.rs`.

use dynoxide::DynoxideError;
use dynoxide::errors::CancellationReason;
use serde_json::Value;

use super::expressions::{Action, Comparison, Operand, actions, comparisons};
use super::schema::{Place, Schema};

/// More operands than this are too many for `IN`.
const MOST_IN: usize = 100;

const TYPES: [&str; 10] = ["B", "NULL", "SS", "BOOL", "L", "BS", "N", "NS", "S", "M"];

type Checked = Result<(), String>;

/// One operation of a request: the whole of it, or an item of a transaction or batch.
struct Part<'r> {
    kind: Kind,
    table: &'r str,
    fields: &'r Value,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Put,
    Update,
    Delete,
    Check,
    Get,
    Query,
    Scan,
}

/// Refuses a request of this operation that DynamoDB would refuse. `schema` tells a table's keys.
pub(super) fn check(
    operation: &str,
    request: &Value,
    schema: impl Fn(&str) -> Option<Schema>,
) -> Result<(), DynoxideError> {
    let parts = parts(operation, request);
    for part in &parts {
        part.check_expressions().map_err(DynoxideError::ValidationException)?;
    }
    let refusals: Vec<Option<String>> =
        parts.iter().map(|part| schema(part.table).and_then(|schema| part.check_keys(&schema).err())).collect();
    match refusals.iter().flatten().next() {
        None => Ok(()),
        // What depends on the table is a transaction's reason to be cancelled, item by item.
        Some(_) if operation.starts_with("Transact") => Err(cancelled(refusals)),
        Some(refusal) => Err(DynoxideError::ValidationException(refusal.clone())),
    }
}

fn parts<'r>(operation: &str, request: &'r Value) -> Vec<Part<'r>> {
    let part = |kind, fields: &'r Value| Part { kind, table: fields["TableName"].as_str().unwrap_or_default(), fields };
    let kind = match operation {
        "PutItem" => Kind::Put,
        "UpdateItem" => Kind::Update,
        "DeleteItem" => Kind::Delete,
        "GetItem" => Kind::Get,
        "Query" => Kind::Query,
        "Scan" => Kind::Scan,
        "TransactWriteItems" | "TransactGetItems" => {
            let kinds = [
                ("Put", Kind::Put),
                ("Update", Kind::Update),
                ("Delete", Kind::Delete),
                ("ConditionCheck", Kind::Check),
                ("Get", Kind::Get),
            ];
            let items = request["TransactItems"].as_array().into_iter().flatten();
            return items
                .filter_map(|item| kinds.iter().find_map(|(name, kind)| Some(part(*kind, item.get(name)?))))
                .collect();
        }
        "BatchWriteItem" => {
            let tables = request["RequestItems"].as_object().into_iter().flatten();
            return tables
                .flat_map(|(table, writes)| writes.as_array().into_iter().flatten().map(move |write| (table, write)))
                .filter_map(|(table, write)| Some(Part { kind: Kind::Put, table, fields: write.get("PutRequest")? }))
                .collect();
        }
        _ => return Vec::new(),
    };
    vec![part(kind, request)]
}

fn cancelled(refusals: Vec<Option<String>>) -> DynoxideError {
    let code = |refusal: &Option<String>| if refusal.is_some() { "ValidationError" } else { "None" };
    let codes: Vec<&str> = refusals.iter().map(code).collect();
    let message =
        format!("Transaction cancelled, please refer cancellation reasons for specific reasons [{}]", codes.join(", "));
    let reason =
        |refusal: Option<String>| CancellationReason { code: code(&refusal).to_owned(), message: refusal, item: None };
    DynoxideError::TransactionCanceledException(message, refusals.into_iter().map(reason).collect())
}

impl<'r> Part<'r> {
    fn text(&self, field: &str) -> Option<&'r str> {
        self.fields[field].as_str()
    }

    /// What can be refused without looking at the table.
    fn check_expressions(&self) -> Checked {
        self.check_placeholders()?;
        for field in ["ConditionExpression", "FilterExpression"] {
            for comparison in self.text(field).map(|text| comparisons(text, self.fields)).unwrap_or_default() {
                check_comparison(&comparison).map_err(|refusal| format!("Invalid {field}: {refusal}"))?;
            }
        }
        for action in self.actions() {
            check_action(&action).map_err(|refusal| format!("Invalid UpdateExpression: {refusal}"))?;
        }
        Ok(())
    }

    /// Names and values must not be there without use. Those that are there and unused the engine refuses.
    fn check_placeholders(&self) -> Checked {
        let expressions: &[&str] = match self.kind {
            Kind::Put | Kind::Delete | Kind::Check => &["ConditionExpression"],
            Kind::Update => &["UpdateExpression", "ConditionExpression"],
            Kind::Get => &["ProjectionExpression"],
            Kind::Query => &["KeyConditionExpression", "FilterExpression", "ProjectionExpression"],
            Kind::Scan => &["FilterExpression", "ProjectionExpression"],
        };
        let is_used = expressions.iter().any(|field| self.text(field).is_some());
        for field in ["ExpressionAttributeNames", "ExpressionAttributeValues"] {
            // A read by key knows no values, and DynamoDB no such field of it.
            let Some(placeholders) = self.fields[field].as_object().filter(|_| self.takes(field)) else { continue };
            if !is_used {
                return Err(format!("{field} can only be specified when using expressions"));
            }
            if placeholders.is_empty() {
                return Err(format!("{field} must not be empty"));
            }
        }
        Ok(())
    }

    fn takes(&self, field: &str) -> bool {
        field == "ExpressionAttributeNames" || self.kind != Kind::Get
    }

    fn actions(&self) -> Vec<Action<'r>> {
        let update = self.text("UpdateExpression").filter(|_| self.kind == Kind::Update);
        update.map(|text| actions(text, self.fields)).unwrap_or_default()
    }

    /// What depends on which attributes are keys.
    fn check_keys(&self, schema: &Schema) -> Checked {
        match self.kind {
            Kind::Put => self.check_item(schema),
            Kind::Update => self.check_update(schema),
            Kind::Query | Kind::Scan => self.check_read(schema),
            Kind::Delete | Kind::Check | Kind::Get => Ok(()),
        }
    }

    fn check_item(&self, schema: &Schema) -> Checked {
        let mut attributes = self.fields["Item"].as_object().into_iter().flatten();
        attributes.try_for_each(|(name, value)| fits_indexes(schema, name, value))
    }

    fn check_update(&self, schema: &Schema) -> Checked {
        for action in self.actions() {
            let Action { attribute, values, whole, .. } = &action;
            if schema.is_key(attribute) {
                return Err(format!(
                    "One or more parameter values were invalid: Cannot update attribute {attribute}. This attribute is part of the key"
                ));
            }
            if *whole {
                values.iter().try_for_each(|value| fits_indexes(schema, attribute, value))?;
            }
        }
        Ok(())
    }

    fn check_read(&self, schema: &Schema) -> Checked {
        let keys = schema.read_by(self.text("IndexName"));
        for comparison in
            self.text("KeyConditionExpression").map(|text| comparisons(text, self.fields)).unwrap_or_default()
        {
            let Some((Operand::Path(path), values)) = comparison.operands.split_first() else { continue };
            let Some((name, place)) = keys.iter().find(|(name, _)| path[..] == [name.clone()]) else { continue };
            for value in values {
                if let Operand::Value(value) = value {
                    is_key_value(name, *place, value)?;
                }
            }
        }
        let start = self.fields["ExclusiveStartKey"].as_object();
        for (name, place) in schema.read_by(None).iter().chain(keys) {
            if let Some(value) = start.and_then(|start| start.get(name)) {
                is_key_value(name, *place, value)
                    .map_err(|refusal| format!("The provided starting key is invalid: {refusal}"))?;
            }
        }
        Ok(())
    }
}

fn fits_indexes(schema: &Schema, attribute: &str, value: &Value) -> Checked {
    match schema.in_indexes(attribute).find_map(|place| place.refuses(value)) {
        Some(refusal) => Err(refusal.to_owned()),
        None => Ok(()),
    }
}

fn is_key_value(name: &str, place: Place, value: &Value) -> Checked {
    if value["S"] == "" || value["B"] == "" {
        let kind = if value["S"] == "" { "string" } else { "binary" };
        return Err(format!(
            "One or more parameter values are not valid. The AttributeValue for a key attribute cannot contain an empty {kind} value. Key: {name}"
        ));
    }
    place.refuses(value).map_or(Ok(()), |refusal| Err(refusal.to_owned()))
}

fn check_comparison(comparison: &Comparison<'_>) -> Checked {
    let Comparison { operator, operands } = comparison;
    if let Some((Operand::Path(first), rest)) = operands.split_first()
        && rest.iter().any(|operand| matches!(operand, Operand::Path(path) if path == first))
    {
        return Err(format!(
            "The first operand must be distinct from the remaining operands for this operator or function; operator: {operator}, \
             first operand: [{}]",
            first.join(", ")
        ));
    }
    match operator.as_str() {
        "<" | "<=" | ">" | ">=" => operands_are(comparison, &["S", "N", "B"]),
        "BETWEEN" => operands_are(comparison, &["S", "N", "B"]).and_then(|()| check_bounds(operands)),
        "begins_with" => operands_are(comparison, &["S", "B"]),
        "attribute_type" => check_type_name(operands),
        "IN" if operands.len() - 1 > MOST_IN => Err(format!(
            "The IN operator is provided with too many operands; number of operands: {}",
            operands.len() - 1
        )),
        _ => Ok(()),
    }
}

/// Of what an item holds, DynamoDB finds out while it compares; a value of the request must have a right type.
fn operands_are(comparison: &Comparison<'_>, types: &[&str]) -> Checked {
    for operand in &comparison.operands {
        if let Operand::Value(value) = operand
            && let Some(kind) = type_of(value).filter(|kind| !types.contains(kind))
        {
            return Err(incorrect_operand(&comparison.operator, kind));
        }
    }
    Ok(())
}

fn check_bounds(operands: &[Operand<'_>]) -> Checked {
    let [_, Operand::Value(lower), Operand::Value(upper)] = operands else { return Ok(()) };
    let kinds = (type_of(lower), type_of(upper));
    let shown = |value: &Value| {
        let kind = type_of(value).unwrap_or_default();
        format!("AttributeValue: {{{kind}:{}}}", value[kind].as_str().unwrap_or_default())
    };
    let bounds = format!("lower bound operand: {}, upper bound operand: {}", shown(lower), shown(upper));
    if kinds.0 != kinds.1 {
        return Err(format!("The BETWEEN operator requires same data type for lower and upper bounds; {bounds}"));
    }
    let number = |value: &Value| value["N"].as_str().and_then(|digits| digits.parse::<f64>().ok());
    let is_reversed = match kinds.0 {
        Some("S") => lower["S"].as_str() > upper["S"].as_str(),
        Some("N") => number(lower) > number(upper),
        _ => false,
    };
    if is_reversed {
        return Err(format!(
            "The BETWEEN operator requires upper bound to be greater than or equal to lower bound; {bounds}"
        ));
    }
    Ok(())
}

fn check_type_name(operands: &[Operand<'_>]) -> Checked {
    let [_, Operand::Value(value)] = operands else { return Ok(()) };
    match value["S"].as_str() {
        None => Err(incorrect_operand("attribute_type", type_of(value).unwrap_or_default())),
        Some(name) if TYPES.contains(&name) => Ok(()),
        Some(name) => {
            Err(format!("Invalid attribute type name found; type: {name}, valid types: {{{}}}", TYPES.join(",")))
        }
    }
}

fn check_action(action: &Action<'_>) -> Checked {
    let types: &[&str] = match action.clause.as_str() {
        "ADD" => &["N", "SS", "NS", "BS"],
        "DELETE" => &["SS", "NS", "BS"],
        _ => return Ok(()),
    };
    match action.values.iter().filter_map(|value| type_of(value)).find(|kind| !types.contains(kind)) {
        None => Ok(()),
        Some(kind) => Err(format!(
            "Incorrect operand type for operator or function; operator: {}, operand type: {}",
            action.clause,
            type_word(kind)
        )),
    }
}

fn incorrect_operand(operator: &str, kind: &str) -> String {
    format!("Incorrect operand type for operator or function; operator or function: {operator}, operand type: {kind}")
}

fn type_of(value: &Value) -> Option<&str> {
    value.as_object().and_then(|value| value.keys().next()).map(String::as_str)
}

/// The word that DynamoDB has for a type where an update goes wrong.
fn type_word(kind: &str) -> &str {
    match kind {
        "S" => "STRING",
        "N" => "NUMBER",
        "B" => "BINARY",
        "SS" => "STRING_SET",
        "NS" => "NUMBER_SET",
        "BS" => "BINARY_SET",
        "BOOL" => "BOOLEAN",
        "L" => "LIST",
        "M" => "MAP",
        other => other,
    }
}
