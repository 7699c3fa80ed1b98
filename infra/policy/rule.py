"""What a rule is, and what it looks at: the templates and the Rust sources that they must agree with."""

from reading import ROOT, Evaluated, load

TEMPLATES = {"main": "template.yaml", "cdn": "infra/cdn.yaml", "alarms": "infra/alarms.yaml", "dashboard": "infra/dashboard.yaml"}
LAMBDA, ROLE, QUEUE, BUCKET = "AWS::Serverless::Function", "AWS::IAM::Role", "AWS::SQS::Queue", "AWS::S3::Bucket"
NESTED, ALARM, PERMISSION = "AWS::Serverless::Application", "AWS::CloudWatch::Alarm", "AWS::Lambda::Permission"
DAY, KIB = 24 * 60 * 60, 1024

# Everything that is off by default, switched on.
BUS = "arn:aws:events:eu-west-1:111122223333:event-bus/site"
TOPIC = "arn:aws:sns:eu-west-1:111122223333:site"
KMS_KEYS = "arn:aws:kms:eu-west-1:111122223333:key/table,arn:aws:kms:eu-west-1:111122223333:key/bucket"
KEYS = "0123456789abcdef0123456789abcdef"
ALL_ON = {"RevalidateKeys": f"site:{KEYS}", "PreviewKeys": KEYS, "KeyArns": KMS_KEYS, "EventTarget": BUS, "InvalidateCdn": "true"}


class Stack:
    """The templates, and the Rust sources that they must agree with."""

    def __init__(self):
        self.templates = {name: load(path) for name, path in TEMPLATES.items()}
        self.sources = {}
        for path in sorted((ROOT / "crates").glob("*/src/**/*.rs")):
            # Tests at the end of a file call and read what the functions do not.
            code = path.read_text().split("#[cfg(test)]\nmod tests {")[0]
            self.sources[str(path.relative_to(ROOT))] = code

    def main(self, **parameters):
        return Evaluated(self.templates["main"], **parameters)

    def cdn(self, **parameters):
        given = {"ServeFunctionArn": "${ServeFunction.Alias}", "ServeUrl": "https://url.example/"}
        return Evaluated(self.templates["cdn"], **given, **parameters)

    def alarms(self, **parameters):
        """As the main template has them made for these parameters of its own."""
        return Evaluated(self.templates["alarms"], **self.main(**parameters).resources(NESTED)["Alarms"]["Parameters"])

    def dashboard(self):
        return Evaluated(self.templates["dashboard"], Stack="stack")

    def code(self, *folders):
        """The sources below these folders of crates/, as one text."""
        paths = tuple(f"crates/{folder}" for folder in folders)
        found = [text for path, text in self.sources.items() if path.startswith(paths)]
        assert found, f"there are no sources below {paths}"
        return "\n".join(found)


RULES = []


def rule(name, *breaks):
    """A rule: a function that yields complaints, its name, and ways to break it."""

    def register(function):
        RULES.append((name, function, breaks))
        return function

    return register


def put(path, value):
    """A way to break a template: another value at `path`, which begins with the template's name."""

    def apply(stack):
        node, last = _find(stack, path)
        assert not isinstance(node, dict) or node.get(last) != value, f"{path} is {value} already"
        node[last] = value

    return apply


def drop(path):
    """A way to break a template: nothing at `path`."""

    def apply(stack):
        node, last = _find(stack, path)
        del node[last]

    return apply


def rewrite(source, old, new):
    """A way to break the agreement with the code: another text in a source."""

    def apply(stack):
        assert old in stack.sources[source], f"{source} has no {old!r}"
        stack.sources[source] = stack.sources[source].replace(old, new)

    return apply


def _find(stack, path):
    """The holder of the last part of a path, and that part. `Sid=Logs` stands for the statement of that name."""
    name, *parts = path.split(" ")
    node = stack.templates[name]
    for index, part in enumerate(parts):
        if isinstance(node, list):
            if "=" in part:
                key, value = part.split("=")
                [part] = [at for at, item in enumerate(node) if item.get(key) == value]
            part = int(part)
        if index == len(parts) - 1:
            return node, part
        node = node[part]
    raise KeyError(path)


RESOURCES = "main Resources"
PROPERTIES = "Properties"


def statements(role):
    return [statement for policy in role["Policies"] for statement in policy["PolicyDocument"]["Statement"]]


def policies(stack):
    """Every resource policy, by the name of what carries it."""
    for kind in ("AWS::S3::BucketPolicy", "AWS::SQS::QueuePolicy"):
        for name, properties in stack.main().resources(kind).items():
            yield name, properties
