// Many decoded rows of one to four segments: as many blocks as fit are under way at once.

EARLY_KERNEL(attend_short_1, Attend, 32) { attend_short<1, SHORT_RING>(a); }
EARLY_KERNEL(attend_short_2, Attend, 64) { attend_short<2, SHORT_RING>(a); }
EARLY_KERNEL(attend_short_3, Attend, 96) { attend_short<3, SHORT_RING>(a); }
EARLY_KERNEL(attend_short_4, Attend, 128) { attend_short<4, SHORT_RING>(a); }
