//! The faults of a run besides those of single requests, each with its name in the report.

/// The enum, all of its values and their names, from one list.
macro_rules! run_faults {
    ($($fault:ident = $name:literal,)+) => {
        /// A fault, an operation or an edit that a run injects. Faults of single requests are
        /// [`everfresh_local::faults::Fault`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum RunFault {
            $($fault,)+
        }

        impl RunFault {
            pub const ALL: &'static [RunFault] = &[$(RunFault::$fault,)+];

            /// The name in the report.
            pub fn name(self) -> &'static str {
                match self {
                    $(RunFault::$fault => $name,)+
                }
            }
        }
    };
}

run_faults! {
    // Worker invocations and clocks.
    Kill = "kill",
    Freeze = "freeze",
    FreezeStopsTimers = "freeze-stops-timers",
    FreezeStopsClocks = "freeze-stops-clocks",
    FreezeAfterUpload = "freeze-after-upload",
    LostAck = "lost-ack",
    AckByCopy = "ack-by-copy",
    SkewedClock = "skewed-clock",
    DriftingClock = "drifting-clock",
    ClockStep = "clock-step",
    // Producers and editors.
    DoubleFire = "double-fire",
    KeyConflict = "key-conflict",
    EditDuringRender = "edit-during-render",
    ConfigurationSkew = "configuration-skew",
    // The serving function.
    InstanceReplaced = "instance-replaced",
    // The origin.
    OriginFails = "origin-fails",
    OriginRedirects = "origin-redirects",
    OriginAbsent = "origin-absent",
    OriginIsPrivate = "origin-is-private",
    OriginUnreachable = "origin-unreachable",
    OriginHangs = "origin-hangs",
    OriginEmpty = "origin-empty",
    OriginForbidden = "origin-forbidden",
    OriginCache = "origin-cache",
    RendererPanics = "renderer-panics",
    // AWS services.
    StaleRead = "stale-read",
    ObjectLoss = "object-loss",
    LeaseOutage = "lease-outage",
    ForgottenToken = "forgotten-token",
    NotificationOutage = "notification-outage",
    // Operators.
    InvalidatePath = "invalidate-path",
    InvalidatePrefix = "invalidate-prefix",
    Pin = "pin",
    Unpin = "unpin",
    Purge = "purge",
    RollBack = "roll-back",
    Redrive = "redrive",
    RedriveCrash = "redrive-crash",
    RedriveTwice = "redrive-twice",
    CleanUp = "clean-up",
    EndLease = "end-lease",
    EndCooldown = "end-cooldown",
    Pause = "pause",
    Sweep = "sweep",
    Expiry = "expiry",
    // Foreign writers.
    ForeignCommit = "foreign-commit",
    ForeignPointer = "foreign-pointer",
}
