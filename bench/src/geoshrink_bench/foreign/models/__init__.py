"""One file for each foreign model; each ends in register(Recipe(…))."""

from . import alloys as alloys
from . import avoiding as avoiding
from . import digits_cnn as digits_cnn
from . import digits_latent as digits_latent
from . import digits_unet as digits_unet
from . import digits_vit as digits_vit
from . import letters_latent as letters_latent
from . import peptide as peptide
from . import spectra_21cm as spectra_21cm
from . import sphere as sphere
from . import vitals as vitals
