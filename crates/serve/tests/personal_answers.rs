//! Whatever an origin answers to whichever visitor, nothing of one visitor reaches another or is
//! kept. The origins and visitors are generated: see `everfresh_testing::visitors`.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use everfresh_serve::http::{Reply, Request};
use everfresh_testing::visitors::{Answer, PATHS, TOKEN, VISITORS, Visit, token};
use everfresh_testing::{CONFIG, Instance, World, get};
use futures::future::join_all;

const CASES: u64 = 60;
const ROUNDS: usize = 6;

fn request(visit: &Visit, knows_client: bool) -> Request {
    let mut request = get(&visit.target);
    request.method = visit.method.to_owned();
    request.headers.extend(visit.headers.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
    request.cookies.extend(visit.cookie.clone());
    request.client = knows_client.then(|| token(visit.visitor));
    request
}

fn everything(reply: &Reply) -> String {
    format!("{:?} {}", reply.headers, String::from_utf8_lossy(&reply.body))
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

/// All visitors at the same time, of the same path or of any.
async fn round(instances: &[Instance; 2], rng: &mut fastrand::Rng, why: &str) {
    let shared = rng.bool().then(|| PATHS[rng.usize(0..PATHS.len())]);
    let visits: Vec<_> = (0..VISITORS)
        .map(|visitor| {
            let path = shared.unwrap_or_else(|| PATHS[rng.usize(0..PATHS.len())]);
            let visit = Visit::draw(visitor, path, |below| rng.usize(0..below));
            let request = request(&visit, rng.bool());
            (visit, request, &instances[rng.usize(0..2)])
        })
        .collect();
    let replies = join_all(visits.iter().map(|(_, request, instance)| instance.whole(request))).await;
    for ((visit, ..), reply) in visits.iter().zip(replies) {
        visit.check(&everything(&reply), why);
    }
}

#[tokio::test]
async fn nothing_of_a_visitor_reaches_another_or_is_kept() {
    for case in 0..CASES {
        let rng = &mut fastrand::Rng::with_seed(case);
        let answer = Answer::draw(|below| rng.usize(0..below));
        let why = format!("case {case}: {answer:?}");
        let origin = answer.origin().await;
        let more = format!(
            "render = {{ http = {:?} }}\n[[tenant.acme.route]]\npath = \"/account/{{id}}\"\nmode = \"pass\"\n",
            origin.url()
        );
        let config = CONFIG.replacen("render = { templates = \"site/\" }", &more, 1);
        let world = World::with_config(&config).await;
        let instances = [(); 2].map(|()| world.instance_with(|settings| settings.pass_after_ms = 10));
        world.origin.answers(answer.status, &answer.headers, "anonymous");
        let sandbox = world.sandbox().await;
        for _ in 0..ROUNDS {
            round(&instances, rng, &why).await;
            if rng.bool() {
                sandbox.invoke().await;
            }
        }
        // A new visitor, after all that was published meanwhile.
        for path in PATHS {
            let reply = everything(&instances[0].whole(&get(path)).await);
            assert!(!reply.contains(TOKEN), "{path}: {reply}\n{why}");
        }
        let kept = everything_kept(&world).await;
        assert!(!kept.contains(TOKEN), "{why}\n{kept}");
    }
}
