//! Which request headers make a request one for something else than the stored page.

/// Request headers with which frameworks fetch something else than the page at the page's own
/// path: a payload for client navigation, a prefetch, a fragment, the result of an action. Each
/// goes to the origin on every page route, for such an answer must never be taken for the page.
pub const FRAGMENT_HEADERS: [&str; 14] = [
    // Next.js: React Server Components and server actions.
    "next-action",
    "next-router-prefetch",
    "next-router-segment-prefetch",
    "next-router-state-tree",
    "next-url",
    "rsc",
    "x-nextjs-data",
    // Inertia, htmx, Turbo, pjax, Unpoly, and JavaScript that says what it is.
    "hx-request",
    "turbo-frame",
    "up-version",
    "x-inertia",
    "x-pjax",
    "x-requested-with",
    // Which site a request comes from: browsers send it for requests across sites and with forms.
    "origin",
];
