"""How wrong costs may be: assumed ones, such as were recorded elsewhere, and measured ones."""

from __future__ import annotations

from placement_advisor.simulator.sensitivity import Doubt

# A roofline is within 2 for two kinds of op in three (docs/figures.md), most of which both sides of
# a ratio share: what is left between them is taken for a quarter, by judgement. Nobody has timed
# launches and copies there: twice and half as much is judgement, too.
ASSUMED_DOUBT = Doubt(copies=2.0, launches=2.0, ops=1.25, may_hide_launches=True)
# What was recorded of links is their time without waiting and without the call that starts a copy.
# Judgement: between what is measured here and what is assumed.
RECORDED_DOUBT = Doubt(copies=1.5, launches=2.0, ops=1.1, may_hide_launches=True)
# Where both were measured: meant to hold nine in ten ratios (docs/cost-model.md: how many it did).
MEASURED_DOUBT = Doubt(copies=1.5, launches=1.5, ops=1.1)
