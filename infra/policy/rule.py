"""Rules, and what they check: the templates, and the Rust sources that the templates must agree
with."""

from reading import ROOT, Evaluated, load

TEMPLATES = {"main": "template.yaml", "cdn": "infra/cdn.yaml", "alarms": "infra/alarms.yaml", "dashboard": "infra/dashboard.yaml"}
LAMBDA, ROLE, QUEUE, BUCKET = "AWS::Serverless::Function", "AWS::IAM::Role", "AWS::SQS::Queue", "AWS::S3::Bucket"
NESTED, ALARM, PERMISSION = "AWS::Serverless::Application", "AWS::CloudWatch::Alarm", "AWS::Lambda::Permission"
DAY, KIB = 24 * 60 * 60, 1024
VIEWER_FUNCTIONS = {"PageRequest": "infra/viewer-page.js", "AppRequest": "infra/viewer-app.js"}

# All optional features enabled.
BUS = "arn:aws:events:eu-west-1:111122223333:event-bus/site"
TOPIC = "arn:aws:sns:eu-west-1:111122223333:site"
KMS_KEYS = "arn:aws:kms:eu-west-1:111122223333:key/table,arn:aws:kms:eu-west-1:111122223333:key/bucket"
FUNCTIONS = "arn:aws:lambda:eu-west-1:111122223333:function:ssr,arn:aws:lambda:eu-west-1:111122223333:function:shop:live"
ORIGIN_SECRET = "arn:aws:secretsmanager:eu-west-1:111122223333:secret:acme/origin-a1b2c3"
RENDER_SECRET = "arn:aws:secretsmanager:eu-west-1:111122223333:secret:acme/render-a1b2c3"
KEYS = "0123456789abcdef0123456789abcdef"
ALL_ON = {
    "RevalidateKeys": f"site:{KEYS}", "PreviewKeys": KEYS, "KeyArns": KMS_KEYS, "EventTarget": BUS, "InvalidateCdn": "true",
    "RenderFunctionArns": FUNCTIONS, "OriginSecretArns": ORIGIN_SECRET, "RenderSecretArns": RENDER_SECRET,
    "AppOrigin": "app.example.net:8443", "AppOriginHeader": "x-from-cdn:0123456789abcdef", "ResponseStream": "true",
    "ServeConcurrency": 100,
}  # fmt: skip


class Stack:
    """The templates, and the Rust sources that they must agree with."""

    def __init__(self):
        self.templates = {name: load(path) for name, path in TEMPLATES.items()}
        self.sources = {}
        for path in sorted((ROOT / "crates").glob("*/src/**/*.rs")):
            # Without unit tests, which make other calls than the functions do.
            code = path.read_text().split("#[cfg(test)]\nmod tests {")[0]
            self.sources[str(path.relative_to(ROOT))] = code
        self.sources |= {path: (ROOT / path).read_text() for path in VIEWER_FUNCTIONS.values()}

    def main(self, **parameters):
        return Evaluated(self.templates["main"], **parameters)

    def cdn(self, **parameters):
        given = {"ServeFunctionArn": "${ServeFunction.Alias}", "ServeUrl": "https://url.example/"}
        return Evaluated(self.templates["cdn"], **given, **parameters)

    def site(self, **parameters):
        """The distribution, with the parameters that the main template passes for these parameters
        of its own."""
        given = self.main(**parameters).resources(NESTED)["Cdn"]["Parameters"]
        return Evaluated(self.templates["cdn"], **given | {"ServeUrl": "https://url.example/"})

    def alarms(self, **parameters):
        """The alarms, with the parameters that the main template passes for these parameters of its
        own."""
        return Evaluated(self.templates["alarms"], **self.main(**parameters).resources(NESTED)["Alarms"]["Parameters"])

    def dashboard(self):
        return Evaluated(self.templates["dashboard"], Stack="stack")

    def code(self, *folders):
        """The sources in these folders of crates/, as one text."""
        return "\n".join(self.sources[path] for folder in folders for path in self.below(f"crates/{folder}"))

    def below(self, folder):
        """The paths of the sources in a folder, or of a single file."""
        found = [path for path in self.sources if path == folder or path.startswith(f"{folder}/")]
        assert found, f"{folder} has no Rust sources: correct the path in infra/policy"
        return found


RULES = []


def rule(name, *breaks):
    """Registers a rule: a function that yields complaints, its name, and mutations that it must
    detect."""

    def register(function):
        RULES.append((name, function, breaks))
        return function

    return register


def put(path, value):
    """A mutation: another value at `path` of a template. The path begins with the template's
    name."""

    def apply(stack):
        node, last = _find(stack, path)
        assert not isinstance(node, dict) or node.get(last) != value, f"{path} is {value} already"
        node[last] = value

    return apply


def drop(path):
    """A mutation: `path` removed from a template."""

    def apply(stack):
        node, last = _find(stack, path)
        del node[last]

    return apply


def edit(path, old, new):
    """A mutation: another text in a string at `path` of a template."""

    def apply(stack):
        node, last = _find(stack, path)
        assert old in node[last], f"{path} has no {old!r}: correct the text in infra/policy"
        node[last] = node[last].replace(old, new)

    return apply


def rewrite(source, old, new):
    """A mutation: another text in the Rust sources, wherever it occurs below a folder (or in one
    file)."""

    def apply(stack):
        found = [path for path in stack.below(source) if old in stack.sources[path]]
        assert found, f"{source} has no {old!r}: correct the text in infra/policy"
        for path in found:
            stack.sources[path] = stack.sources[path].replace(old, new)

    return apply


def _find(stack, path):
    """The parent node of a path, and the last key. `Sid=Logs` selects the list item with that
    value."""
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
    """Every resource policy, by its logical name."""
    for kind in ("AWS::S3::BucketPolicy", "AWS::SQS::QueuePolicy"):
        for name, properties in stack.main().resources(kind).items():
            yield name, properties
