//! Parses expressions as far as the checks in front of the engine need it. What cannot be parsed
//! here is left to the engine, which refuses it.

use serde_json::Value;

/// An operand of a comparison or argument of a function.
#[derive(Debug, PartialEq)]
pub(super) enum Operand<'r> {
    /// A document path with its names resolved: `m.#b[0]` is `m`, `b`, `[0]`.
    Path(Vec<String>),
    /// A value of the request, such as `{"S": "text"}`.
    Value(&'r Value),
    /// `size(path)`: a number.
    Size,
}

/// One comparison, `BETWEEN`, `IN` or function call of a condition.
#[derive(Debug)]
pub(super) struct Comparison<'r> {
    pub(super) operator: String,
    pub(super) operands: Vec<Operand<'r>>,
}

/// One action of an update.
#[derive(Debug)]
pub(super) struct Action<'r> {
    /// `SET`, `REMOVE`, `ADD` or `DELETE`.
    pub(super) clause: String,
    /// The top-level attribute that it changes, in whole or in part.
    pub(super) attribute: String,
    /// Whether it changes the attribute as a whole, not a nested path.
    pub(super) whole: bool,
    /// The request's values that it uses.
    pub(super) values: Vec<&'r Value>,
}

/// The comparisons of a condition, filter or key condition, however nested.
pub(super) fn comparisons<'r>(text: &str, request: &'r Value) -> Vec<Comparison<'r>> {
    let mut parser = Parser::new(text, request);
    let mut found = Vec::new();
    while let Some(token) = parser.peek(0) {
        if matches!(token, "(" | ")") || ["AND", "OR", "NOT"].iter().any(|word| token.eq_ignore_ascii_case(word)) {
            parser.at += 1;
            continue;
        }
        match parser.comparison() {
            Some(comparison) => found.push(comparison),
            None => break,
        }
    }
    found
}

pub(super) fn actions<'r>(text: &str, request: &'r Value) -> Vec<Action<'r>> {
    let mut parser = Parser::new(text, request);
    let mut found = Vec::new();
    let mut clause = String::new();
    while let Some(token) = parser.peek(0) {
        if is_clause(token) {
            clause = token.to_ascii_uppercase();
            parser.at += 1;
        }
        let Some(path) = parser.path() else { break };
        found.push(Action {
            clause: clause.clone(),
            attribute: path.first().cloned().unwrap_or_default(),
            whole: path.len() == 1,
            values: parser.rest_of_action(),
        });
    }
    found
}

fn is_clause(token: &str) -> bool {
    ["SET", "REMOVE", "ADD", "DELETE"].iter().any(|word| token.eq_ignore_ascii_case(word))
}

/// Names with `#`, values with `:`, words, numbers and operators.
fn tokens(text: &str) -> Vec<&str> {
    let in_word = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = if in_word(first) || matches!(first, '#' | ':') {
            let tail = &rest[1..];
            1 + tail.find(|character| !in_word(character)).unwrap_or(tail.len())
        } else if ["<=", ">=", "<>"].iter().any(|operator| rest.starts_with(operator)) {
            2
        } else {
            first.len_utf8()
        };
        let (token, tail) = rest.split_at(length);
        tokens.push(token);
        rest = tail.trim_start();
    }
    tokens
}

struct Parser<'t, 'r> {
    tokens: Vec<&'t str>,
    at: usize,
    request: &'r Value,
}

impl<'t, 'r> Parser<'t, 'r> {
    fn new(text: &'t str, request: &'r Value) -> Self {
        Self { tokens: tokens(text), at: 0, request }
    }

    fn peek(&self, ahead: usize) -> Option<&'t str> {
        self.tokens.get(self.at + ahead).copied()
    }

    fn next(&mut self) -> Option<&'t str> {
        let token = self.peek(0)?;
        self.at += 1;
        Some(token)
    }

    fn expect(&mut self, word: &str) -> Option<()> {
        self.next().filter(|token| token.eq_ignore_ascii_case(word)).map(drop)
    }

    fn comparison(&mut self) -> Option<Comparison<'r>> {
        let function = self.peek(0).filter(|name| self.peek(1) == Some("(") && *name != "size");
        if let Some(function) = function {
            self.at += 1;
            return Some(Comparison { operator: function.to_owned(), operands: self.list()? });
        }
        let mut operands = vec![self.operand()?];
        let operator = self.next()?.to_ascii_uppercase();
        match operator.as_str() {
            "=" | "<>" | "<" | "<=" | ">" | ">=" => operands.push(self.operand()?),
            "BETWEEN" => {
                operands.push(self.operand()?);
                self.expect("AND")?;
                operands.push(self.operand()?);
            }
            "IN" => operands.extend(self.list()?),
            _ => return None,
        }
        Some(Comparison { operator, operands })
    }

    /// Parenthesized operands.
    fn list(&mut self) -> Option<Vec<Operand<'r>>> {
        self.expect("(")?;
        let mut operands = vec![self.operand()?];
        loop {
            match self.next()? {
                "," => operands.push(self.operand()?),
                ")" => return Some(operands),
                _ => return None,
            }
        }
    }

    fn operand(&mut self) -> Option<Operand<'r>> {
        let token = self.peek(0)?;
        if token.starts_with(':') {
            self.at += 1;
            return self.value(token).map(Operand::Value);
        }
        if token == "size" && self.peek(1) == Some("(") {
            self.at += 2;
            self.operand()?;
            self.expect(")")?;
            return Some(Operand::Size);
        }
        self.path().map(Operand::Path)
    }

    fn path(&mut self) -> Option<Vec<String>> {
        let mut path = vec![self.name()?];
        loop {
            match self.peek(0) {
                Some(".") => {
                    self.at += 1;
                    path.push(self.name()?);
                }
                Some("[") => {
                    path.push(format!("[{}]", self.peek(1)?));
                    self.at += 2;
                    self.expect("]")?;
                }
                _ => return Some(path),
            }
        }
    }

    fn name(&mut self) -> Option<String> {
        let token = self.next()?;
        if token.starts_with('#') {
            return self.request["ExpressionAttributeNames"][token].as_str().map(str::to_owned);
        }
        let is_word = token.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
        is_word.then(|| token.to_owned())
    }

    fn value(&self, token: &str) -> Option<&'r Value> {
        self.request["ExpressionAttributeValues"].get(token)
    }

    /// The values used up to the next action.
    fn rest_of_action(&mut self) -> Vec<&'r Value> {
        let mut values = Vec::new();
        let mut depth = 0_usize;
        while let Some(token) = self.peek(0) {
            if depth == 0 && is_clause(token) {
                break;
            }
            self.at += 1;
            match token {
                "(" => depth += 1,
                ")" => depth = depth.saturating_sub(1),
                "," if depth == 0 => break,
                _ if token.starts_with(':') => values.extend(self.value(token)),
                _ => {}
            }
        }
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn request() -> Value {
        json!({
            "ExpressionAttributeNames": {"#s": "status", "#dot": "a.b"},
            "ExpressionAttributeValues": {":v": {"S": "x"}, ":n": {"N": "1"}},
        })
    }

    #[test]
    fn nested_comparisons_are_found() {
        let request = request();
        let text = "attribute_not_exists(pk) OR (NOT #s<>:v and m.b[0] >= :n) AND lease between :n AND size(m) OR a IN (:v,:n)";
        let found = comparisons(text, &request);
        let shown: Vec<(&str, usize)> =
            found.iter().map(|found| (found.operator.as_str(), found.operands.len())).collect();
        assert_eq!(shown, [("attribute_not_exists", 1), ("<>", 2), (">=", 2), ("BETWEEN", 3), ("IN", 3)]);
        assert_eq!(found[1].operands[0], Operand::Path(vec!["status".into()]));
        assert_eq!(found[2].operands[0], Operand::Path(vec!["m".into(), "b".into(), "[0]".into()]));
        assert_eq!(found[3].operands[2], Operand::Size);
    }

    #[test]
    fn name_placeholder_with_a_dot_is_not_a_path() {
        let request = request();
        let found = comparisons("#dot = a.b", &request);
        assert_ne!(found[0].operands[0], found[0].operands[1]);
    }

    #[test]
    fn actions_are_parsed_with_clause_attribute_and_values() {
        let request = request();
        let text = "SET a = if_not_exists(a, :v), m.b = :n remove #s, c ADD d :n";
        let found = actions(text, &request);
        let shown: Vec<(&str, &str, bool, usize)> =
            found.iter().map(|it| (it.clause.as_str(), it.attribute.as_str(), it.whole, it.values.len())).collect();
        let expected = [
            ("SET", "a", true, 1),
            ("SET", "m", false, 1),
            ("REMOVE", "status", true, 0),
            ("REMOVE", "c", true, 0),
            ("ADD", "d", true, 1),
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn invalid_expressions_are_left_to_the_engine() {
        let request = request();
        for text in ["", "(", "a =", "= a", "a BETWEEN :v", "é = ü", ":missing = a", "a IN (", "f(", "a[", "size(a"] {
            assert!(comparisons(text, &request).is_empty(), "{text}");
            actions(text, &request);
        }
    }
}
