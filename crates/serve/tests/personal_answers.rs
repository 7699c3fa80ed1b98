//! Whatever an origin answers to whichever visitor, nothing of one visitor reaches another or is
//! kept.
//!
//! The origin is as careless as one can be: every answer to a visitor repeats the whole request in
//! body and headers, and calls itself cacheable as often as not.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use everfresh_serve::http::{Reply, Request};
use everfresh_testing::{CONFIG, Server, World, get};

const CASES: u64 = 40;
const VISITS: usize = 24;
const VISITORS: usize = 3;

const STATUSES: [u16; 12] = [200, 200, 200, 200, 203, 204, 301, 302, 403, 404, 410, 451];
const HEADERS: [(&str, &str); 14] = [
    ("cache-control", "public, max-age=600"),
    ("cache-control", "s-maxage=600"),
    ("cache-control", "private"),
    ("cache-control", "no-store"),
    ("cache-control", "no-cache"),
    ("cdn-cache-control", "max-age=600"),
    ("everfresh-cdn-cache-control", "max-age=600"),
    ("surrogate-control", "max-age=600"),
    ("vary", "cookie"),
    ("vary", "accept-encoding"),
    ("set-cookie", "session=of-no-visitor"),
    ("etag", "\"same\""),
    ("last-modified", "Wed, 18 Nov 2026 10:00:00 GMT"),
    ("location", "/products/elsewhere"),
];
/// A page, a page that is kept, a path that passes, a file, and a path without a route.
const PATHS: [&str; 5] = ["/products/1", "/kept/1", "/account/1", "/style.css", "/unknown"];

#[derive(Clone, Debug)]
struct Answer {
    status: u16,
    headers: Vec<(&'static str, &'static str)>,
}

impl Answer {
    fn draw(rng: &mut fastrand::Rng) -> Self {
        let headers = (0..rng.usize(0..4)).map(|_| HEADERS[rng.usize(0..HEADERS.len())]).collect();
        Self { status: STATUSES[rng.usize(0..STATUSES.len())], headers }
    }

    fn head(&self, request: &str, body_bytes: usize) -> String {
        let own = self.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect::<String>();
        let line = request.lines().next().unwrap();
        let cookie = request.lines().find_map(|line| line.strip_prefix("cookie: ")).unwrap_or_default();
        format!(
            "HTTP/1.1 {} X\r\n{own}content-type: text/html\r\nx-request: {line}\r\nset-cookie: last={cookie}\r\n\
             content-length: {body_bytes}\r\nconnection: close\r\n\r\n",
            self.status
        )
    }
}

async fn careless_origin(answer: Answer) -> Server {
    Server::start(move |mut talk| {
        let answer = answer.clone();
        async move {
            let head = talk.request().await?;
            let empty = answer.status == 204 || head.starts_with("HEAD ");
            let length = if answer.status == 204 { 0 } else { head.len() };
            talk.send(answer.head(&head, length)).await?;
            talk.send(if empty { "" } else { &head }).await
        }
    })
    .await
}

fn token(visitor: usize) -> String {
    format!("tok-{visitor}-en")
}

fn visit(rng: &mut fastrand::Rng, visitor: usize) -> Request {
    let token = token(visitor);
    let path = PATHS[rng.usize(0..PATHS.len())];
    let mut request = get(&if rng.bool() { path.to_owned() } else { format!("{path}?user={token}") });
    request.method = ["GET", "GET", "GET", "HEAD", "POST"][rng.usize(0..5)].to_owned();
    let may_carry =
        ["authorization", "x-user", "user-agent", "rsc", "if-none-match", "accept-language", "x-everfresh-pass"];
    for name in may_carry {
        if rng.u8(0..3) == 0 {
            request.headers.push((name.to_owned(), token.clone()));
        }
    }
    if rng.bool() {
        request.cookies.push(format!("session={token}"));
    }
    request.client = rng.bool().then_some(token);
    request
}

fn check(reply: &Reply, visitor: usize, why: &str) {
    let everything = format!("{:?} {}", reply.headers, String::from_utf8_lossy(&reply.body));
    for other in (0..VISITORS).filter(|other| *other != visitor) {
        assert!(!everything.contains(&token(other)), "visitor {visitor} got an answer of {other}: {everything}\n{why}");
    }
}

/// All rows, objects and messages.
async fn everything_kept(world: &World) -> String {
    let rows = world.clean.dynamodb.scan().table_name(&world.stack.table).send().await.unwrap();
    let mut kept = format!("{:?}", rows.items());
    for key in world.objects().await {
        kept.push_str(&world.object(&key).await);
    }
    format!("{kept}{:?}", world.messages().await)
}

#[tokio::test]
async fn nothing_of_a_visitor_reaches_another_or_is_kept() {
    for case in 0..CASES {
        let rng = &mut fastrand::Rng::with_seed(case);
        let answer = Answer::draw(rng);
        let why = format!("case {case}: {answer:?}");
        let origin = careless_origin(answer.clone()).await;
        let more = format!(
            "render = {{ http = {:?} }}\n[[tenant.acme.route]]\npath = \"/account/{{id}}\"\nmode = \"pass\"\n",
            origin.url()
        );
        let config = CONFIG.replacen("render = { templates = \"site/\" }", &more, 1);
        let world = World::with_config(&config).await;
        let instances = [(); 2].map(|()| world.instance_with(|settings| settings.pass_after_ms = 10));
        world.origin.answers(answer.status, &answer.headers, "anonymous");
        let sandbox = world.sandbox().await;
        for _ in 0..VISITS / 2 {
            let (one, two) = (rng.usize(0..VISITORS), rng.usize(0..VISITORS));
            let (first, second) = (visit(rng, one), visit(rng, two));
            let (for_one, for_two) =
                tokio::join!(instances[0].whole(&first), instances[rng.usize(0..2)].whole(&second));
            check(&for_one, one, &why);
            check(&for_two, two, &why);
            if rng.u8(0..3) == 0 {
                sandbox.invoke().await;
            }
        }
        let kept = everything_kept(&world).await;
        assert!(!kept.contains("tok-"), "{why}\n{kept}");
    }
}
