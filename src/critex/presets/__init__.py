"""Settings as data: one file per source, and one resolver.

A source is a reading of the method (paper.toml, official.toml) or a family of environments (minigrid.toml, deepsea.toml).
Precedence is default < family < preset < the user's flags. The settings of the exploration (α, the options of the
bonus, where the bonus goes) always come from a single source, because α is tuned for one scaling of the bonus.
"""

from critex.presets.resolve import default_config, families, preset_options, presets, settings

__all__ = ["default_config", "families", "preset_options", "presets", "settings"]
